"""The TFLite schema as data, written by ``tools/make_schema_table.py``; do not edit.

A line of ``TABLES`` is a table and its fields: ``slot:name:type=default``. A type is a scalar, ``string``, a table,
``[...]`` of those, or ``?U`` for a value of union ``U`` whose member number is in the slot before. A line of
``UNIONS`` is a union and its members, ``ENUMS`` holds the numbers of operators and tensor types.
"""

from __future__ import annotations

TABLES = """
Model 0:version:uint32 1:operator_codes:[OperatorCode] 2:subgraphs:[SubGraph] 3:description:string
  4:buffers:[Buffer] 5:metadata_buffer:[int32] 6:metadata:[Metadata] 7:signature_defs:[SignatureDef]
  8:external_buffer_groups:[ExternalBufferGroup] 9:external_buffers:[ExternalBuffer]
OperatorCode 0:deprecated_builtin_code:int8 1:custom_code:string 2:version:int32=1 3:builtin_code:int32
SubGraph 0:tensors:[Tensor] 1:inputs:[int32] 2:outputs:[int32] 3:operators:[Operator] 4:name:string
  5:debug_metadata_index:int32=-1
Buffer 0:data:[uint8] 1:offset:uint64 2:size:uint64
Metadata 0:name:string 1:buffer:uint32
SignatureDef 0:inputs:[TensorMap] 1:outputs:[TensorMap] 2:signature_key:string 4:subgraph_index:uint32
ExternalBufferGroup 0:name:string
ExternalBuffer 0:id:uint32 1:group:uint32 2:offset:uint64 3:length:uint64 4:packing:string
Tensor 0:shape:[int32] 1:type:int8 2:buffer:uint32 3:name:string 4:quantization:QuantizationParameters
  5:is_variable:bool 6:sparsity:SparsityParameters 7:shape_signature:[int32] 8:has_rank:bool
  9:variant_tensors:[VariantSubType] 10:external_buffer:uint32
Operator 0:opcode_index:uint32 1:inputs:[int32] 2:outputs:[int32] 3:builtin_options_type:uint8
  4:builtin_options:?BuiltinOptions 5:custom_options:[uint8] 6:custom_options_format:int8
  7:mutating_variable_inputs:[bool] 8:intermediates:[int32] 9:large_custom_options_offset:uint64
  10:large_custom_options_size:uint64 11:builtin_options2_type:uint8 12:builtin_options2:?BuiltinOptions2
  13:debug_metadata_index:int32=-1
TensorMap 0:name:string 1:tensor_index:uint32
QuantizationParameters 0:min:[float32] 1:max:[float32] 2:scale:[float32] 3:zero_point:[int64]
  4:details_type:uint8 5:details:?QuantizationDetails 6:quantized_dimension:int32
SparsityParameters 0:traversal_order:[int32] 1:block_map:[int32] 2:dim_metadata:[DimensionMetadata]
VariantSubType 0:shape:[int32] 1:type:int8 2:has_rank:bool
Conv2DOptions 0:padding:int8 1:stride_w:int32 2:stride_h:int32 3:fused_activation_function:int8
  4:dilation_w_factor:int32=1 5:dilation_h_factor:int32=1 6:quantized_bias_type:int8
DepthwiseConv2DOptions 0:padding:int8 1:stride_w:int32 2:stride_h:int32 3:depth_multiplier:int32
  4:fused_activation_function:int8 5:dilation_w_factor:int32=1 6:dilation_h_factor:int32=1
ConcatEmbeddingsOptions 0:num_channels:int32 1:num_columns_per_channel:[int32]
  2:embedding_dim_per_channel:[int32]
LSHProjectionOptions 0:type:int8
Pool2DOptions 0:padding:int8 1:stride_w:int32 2:stride_h:int32 3:filter_width:int32 4:filter_height:int32
  5:fused_activation_function:int8
SVDFOptions 0:rank:int32 1:fused_activation_function:int8 2:asymmetric_quantize_inputs:bool
RNNOptions 0:fused_activation_function:int8 1:asymmetric_quantize_inputs:bool
FullyConnectedOptions 0:fused_activation_function:int8 1:weights_format:int8 2:keep_num_dims:bool
  3:asymmetric_quantize_inputs:bool 4:quantized_bias_type:int8 5:quant_spec:[uint8]
SoftmaxOptions 0:beta:float32
ConcatenationOptions 0:axis:int32 1:fused_activation_function:int8
AddOptions 0:fused_activation_function:int8 1:pot_scale_int16:bool=True
L2NormOptions 0:fused_activation_function:int8
LocalResponseNormalizationOptions 0:radius:int32 1:bias:float32 2:alpha:float32 3:beta:float32
LSTMOptions 0:fused_activation_function:int8 1:cell_clip:float32 2:proj_clip:float32 3:kernel_type:int8
  4:asymmetric_quantize_inputs:bool
ResizeBilinearOptions 2:align_corners:bool 3:half_pixel_centers:bool
CallOptions 0:subgraph:uint32
ReshapeOptions 0:new_shape:[int32]
SkipGramOptions 0:ngram_size:int32 1:max_skip_size:int32 2:include_all_ngrams:bool
SpaceToDepthOptions 0:block_size:int32
EmbeddingLookupSparseOptions 0:combiner:int8
MulOptions 0:fused_activation_function:int8
PadOptions
GatherOptions 0:axis:int32 1:batch_dims:int32
BatchToSpaceNDOptions
SpaceToBatchNDOptions
TransposeOptions
ReducerOptions 0:keep_dims:bool
SubOptions 0:fused_activation_function:int8 1:pot_scale_int16:bool=True
DivOptions 0:fused_activation_function:int8
SqueezeOptions 0:squeeze_dims:[int32]
SequenceRNNOptions 0:time_major:bool 1:fused_activation_function:int8 2:asymmetric_quantize_inputs:bool
StridedSliceOptions 0:begin_mask:int32 1:end_mask:int32 2:ellipsis_mask:int32 3:new_axis_mask:int32
  4:shrink_axis_mask:int32 5:offset:bool
ExpOptions
TopKV2Options
SplitOptions 0:num_splits:int32
LogSoftmaxOptions
CastOptions 0:in_data_type:int8 1:out_data_type:int8
DequantizeOptions
MaximumMinimumOptions
ArgMaxOptions 0:output_type:int8
LessOptions
NegOptions
PadV2Options
GreaterOptions
GreaterEqualOptions
LessEqualOptions
SelectOptions
SliceOptions
TransposeConvOptions 0:padding:int8 1:stride_w:int32 2:stride_h:int32 3:fused_activation_function:int8
  4:quantized_bias_type:int8
SparseToDenseOptions 0:validate_indices:bool
TileOptions
ExpandDimsOptions
EqualOptions
NotEqualOptions
ShapeOptions 0:out_type:int8
PowOptions
ArgMinOptions 0:output_type:int8
FakeQuantOptions 0:min:float32 1:max:float32 2:num_bits:int32 3:narrow_range:bool
PackOptions 0:values_count:int32 1:axis:int32
LogicalOrOptions
OneHotOptions 0:axis:int32
LogicalAndOptions
LogicalNotOptions
UnpackOptions 0:num:int32 1:axis:int32
FloorDivOptions
SquareOptions
ZerosLikeOptions
FillOptions
BidirectionalSequenceLSTMOptions 0:fused_activation_function:int8 1:cell_clip:float32 2:proj_clip:float32
  3:merge_outputs:bool 4:time_major:bool=True 5:asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions 0:time_major:bool 1:fused_activation_function:int8 2:merge_outputs:bool
  3:asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions 0:fused_activation_function:int8 1:cell_clip:float32 2:proj_clip:float32
  3:time_major:bool 4:asymmetric_quantize_inputs:bool 5:diagonal_recurrent_tensors:bool
FloorModOptions
RangeOptions
ResizeNearestNeighborOptions 0:align_corners:bool 1:half_pixel_centers:bool
LeakyReluOptions 0:alpha:float32
SquaredDifferenceOptions
MirrorPadOptions 0:mode:int8
AbsOptions
SplitVOptions 0:num_splits:int32
UniqueOptions 0:idx_out_type:int8=2
ReverseV2Options
AddNOptions
GatherNdOptions
CosOptions
WhereOptions
RankOptions
ReverseSequenceOptions 0:seq_dim:int32 1:batch_dim:int32
MatrixDiagOptions
QuantizeOptions
MatrixSetDiagOptions
HardSwishOptions
IfOptions 0:then_subgraph_index:int32 1:else_subgraph_index:int32
WhileOptions 0:cond_subgraph_index:int32 1:body_subgraph_index:int32
DepthToSpaceOptions 0:block_size:int32
NonMaxSuppressionV4Options
NonMaxSuppressionV5Options
ScatterNdOptions
SelectV2Options
DensifyOptions
SegmentSumOptions
BatchMatMulOptions 0:adj_x:bool 1:adj_y:bool 2:asymmetric_quantize_inputs:bool
CumsumOptions 0:exclusive:bool 1:reverse:bool
CallOnceOptions 0:init_subgraph_index:int32
BroadcastToOptions
Rfft2dOptions
Conv3DOptions 0:padding:int8 1:stride_d:int32 2:stride_w:int32 3:stride_h:int32
  4:fused_activation_function:int8 5:dilation_d_factor:int32=1 6:dilation_w_factor:int32=1
  7:dilation_h_factor:int32=1
HashtableOptions 0:table_id:int32 1:key_dtype:int8 2:value_dtype:int8
HashtableFindOptions
HashtableImportOptions
HashtableSizeOptions
VarHandleOptions 0:container:string 1:shared_name:string
ReadVariableOptions
AssignVariableOptions
RandomOptions 0:seed:int64 1:seed2:int64
BucketizeOptions 0:boundaries:[float32]
GeluOptions 0:approximate:bool
DynamicUpdateSliceOptions
UnsortedSegmentProdOptions
UnsortedSegmentMaxOptions
UnsortedSegmentMinOptions
UnsortedSegmentSumOptions
ATan2Options
SignOptions
BitcastOptions
BitwiseXorOptions
RightShiftOptions
StablehloConcatenateOptions 0:dimension:int64
StablehloBroadcastInDimOptions 0:broadcast_dimensions:[int64]
StablehloSliceOptions 0:start_indices:[int64] 1:limit_indices:[int64] 2:strides:[int64]
StablehloConvolutionOptions 0:window_strides:[int64] 1:padding:[int64] 2:lhs_dilation:[int64]
  3:rhs_dilation:[int64] 4:window_reversal:[bool] 5:input_batch_dimension:int64
  6:input_feature_dimension:int64 7:input_spatial_dimensions:[int64] 8:kernel_input_feature_dimension:int64
  9:kernel_output_feature_dimension:int64 10:kernel_spatial_dimensions:[int64]
  11:output_batch_dimension:int64 12:output_feature_dimension:int64 13:output_spatial_dimensions:[int64]
  14:feature_group_count:int64 15:batch_group_count:int64 16:precision_config:[uint32]
StablehloCustomCallOptions 0:call_target_name:string 1:has_side_effect:bool 2:backend_config:string
  3:api_version:int32 4:called_computations:[int32] 5:custom_attributes:[uint8]
StablehloReduceOptions 0:dimensions:[int64] 1:body_subgraph_index:int32
StablehloScatterOptions 0:indices_are_sorted:bool 1:update_window_dims:[int64]
  2:inserted_window_dims:[int64] 3:scatter_dims_to_operand_dims:[int64] 4:index_vector_dim:int64
  5:unique_indices:bool 6:update_computation_subgraph_index:int32
StablehloCompareOptions 0:comparison_direction:uint32 1:compare_type:uint32
StablehloDynamicSliceOptions 0:slice_sizes:[int64]
StablehloPadOptions 0:edge_padding_low:[int64] 1:edge_padding_high:[int64] 2:interior_padding:[int64]
StablehloIotaOptions 0:iota_dimension:int64
StablehloDotGeneralOptions 0:lhs_batching_dimensions:[int64] 1:rhs_batching_dimensions:[int64]
  2:lhs_contracting_dimensions:[int64] 3:rhs_contracting_dimensions:[int64] 4:precision_config:[uint32]
StablehloReduceWindowOptions 0:window_dimensions:[int64] 1:window_strides:[int64] 2:base_dilations:[int64]
  3:window_dilations:[int64] 4:padding:[int64] 5:body_subgraph_index:int32
StablehloSortOptions 0:dimension:int64 1:is_stable:bool 2:comparator_subgraph_index:int32
StablehloWhileOptions 0:cond_subgraph_index:int32 1:body_subgraph_index:int32
StablehloGatherOptions 0:offset_dims:[int64] 1:collapsed_slice_dims:[int64] 2:start_index_map:[int64]
  3:index_vector_dim:int64 4:slice_sizes:[int64] 5:indices_are_sorted:bool
StablehloTransposeOptions 0:permutation:[int64]
DilateOptions
StablehloRngBitGeneratorOptions 0:algorithm:int8
ReduceWindowOptions 0:reduce_function:int32
StableHLOCompositeOptions 0:name:string 1:decomposition_subgraph_index:int32 2:composite_attributes:[uint8]
  3:composite_attributes_format:int8 4:version:int32
StablehloShiftLeftOptions
StablehloCaseOptions 0:branch_subgraph_indices:[int32]
CustomQuantization 0:custom:[uint8]
BlockwiseQuantization 0:scales:int32 1:zero_points:int32 2:block_size:int32 3:block_shape:[int32]
MultiAxisQuantization 0:scales:int32 1:zero_points:int32 2:block_size:int32 3:quantized_dimensions:[int32]
DimensionMetadata 0:format:int8 1:dense_size:int32 2:array_segments_type:uint8
  3:array_segments:?SparseIndexVector 4:array_indices_type:uint8 5:array_indices:?SparseIndexVector
Int32Vector 0:values:[int32]
Uint16Vector 0:values:[uint16]
Uint8Vector 0:values:[uint8]
"""
UNIONS = """
BuiltinOptions 1:Conv2DOptions 2:DepthwiseConv2DOptions 3:ConcatEmbeddingsOptions 4:LSHProjectionOptions
  5:Pool2DOptions 6:SVDFOptions 7:RNNOptions 8:FullyConnectedOptions 9:SoftmaxOptions
  10:ConcatenationOptions 11:AddOptions 12:L2NormOptions 13:LocalResponseNormalizationOptions 14:LSTMOptions
  15:ResizeBilinearOptions 16:CallOptions 17:ReshapeOptions 18:SkipGramOptions 19:SpaceToDepthOptions
  20:EmbeddingLookupSparseOptions 21:MulOptions 22:PadOptions 23:GatherOptions 24:BatchToSpaceNDOptions
  25:SpaceToBatchNDOptions 26:TransposeOptions 27:ReducerOptions 28:SubOptions 29:DivOptions
  30:SqueezeOptions 31:SequenceRNNOptions 32:StridedSliceOptions 33:ExpOptions 34:TopKV2Options
  35:SplitOptions 36:LogSoftmaxOptions 37:CastOptions 38:DequantizeOptions 39:MaximumMinimumOptions
  40:ArgMaxOptions 41:LessOptions 42:NegOptions 43:PadV2Options 44:GreaterOptions 45:GreaterEqualOptions
  46:LessEqualOptions 47:SelectOptions 48:SliceOptions 49:TransposeConvOptions 50:SparseToDenseOptions
  51:TileOptions 52:ExpandDimsOptions 53:EqualOptions 54:NotEqualOptions 55:ShapeOptions 56:PowOptions
  57:ArgMinOptions 58:FakeQuantOptions 59:PackOptions 60:LogicalOrOptions 61:OneHotOptions
  62:LogicalAndOptions 63:LogicalNotOptions 64:UnpackOptions 65:FloorDivOptions 66:SquareOptions
  67:ZerosLikeOptions 68:FillOptions 69:BidirectionalSequenceLSTMOptions 70:BidirectionalSequenceRNNOptions
  71:UnidirectionalSequenceLSTMOptions 72:FloorModOptions 73:RangeOptions 74:ResizeNearestNeighborOptions
  75:LeakyReluOptions 76:SquaredDifferenceOptions 77:MirrorPadOptions 78:AbsOptions 79:SplitVOptions
  80:UniqueOptions 81:ReverseV2Options 82:AddNOptions 83:GatherNdOptions 84:CosOptions 85:WhereOptions
  86:RankOptions 87:ReverseSequenceOptions 88:MatrixDiagOptions 89:QuantizeOptions 90:MatrixSetDiagOptions
  91:HardSwishOptions 92:IfOptions 93:WhileOptions 94:DepthToSpaceOptions 95:NonMaxSuppressionV4Options
  96:NonMaxSuppressionV5Options 97:ScatterNdOptions 98:SelectV2Options 99:DensifyOptions
  100:SegmentSumOptions 101:BatchMatMulOptions 102:CumsumOptions 103:CallOnceOptions 104:BroadcastToOptions
  105:Rfft2dOptions 106:Conv3DOptions 107:HashtableOptions 108:HashtableFindOptions
  109:HashtableImportOptions 110:HashtableSizeOptions 111:VarHandleOptions 112:ReadVariableOptions
  113:AssignVariableOptions 114:RandomOptions 115:BucketizeOptions 116:GeluOptions
  117:DynamicUpdateSliceOptions 118:UnsortedSegmentProdOptions 119:UnsortedSegmentMaxOptions
  120:UnsortedSegmentMinOptions 121:UnsortedSegmentSumOptions 122:ATan2Options 123:SignOptions
  124:BitcastOptions 125:BitwiseXorOptions 126:RightShiftOptions
BuiltinOptions2 1:StablehloConcatenateOptions 2:StablehloBroadcastInDimOptions 3:StablehloSliceOptions
  4:StablehloConvolutionOptions 5:StablehloCustomCallOptions 6:StablehloReduceOptions
  7:StablehloScatterOptions 8:StablehloCompareOptions 9:StablehloDynamicSliceOptions 10:StablehloPadOptions
  11:StablehloIotaOptions 12:StablehloDotGeneralOptions 13:StablehloReduceWindowOptions
  14:StablehloSortOptions 15:StablehloWhileOptions 16:StablehloGatherOptions 17:StablehloTransposeOptions
  18:DilateOptions 19:StablehloRngBitGeneratorOptions 20:ReduceWindowOptions 21:StableHLOCompositeOptions
  22:StablehloShiftLeftOptions 23:StablehloCaseOptions
QuantizationDetails 1:CustomQuantization 2:BlockwiseQuantization 3:MultiAxisQuantization
SparseIndexVector 1:Int32Vector 2:Uint16Vector 3:Uint8Vector
"""
ENUMS = """
BuiltinOperator 0:ADD 1:AVERAGE_POOL_2D 2:CONCATENATION 3:CONV_2D 4:DEPTHWISE_CONV_2D 5:DEPTH_TO_SPACE
  6:DEQUANTIZE 7:EMBEDDING_LOOKUP 8:FLOOR 9:FULLY_CONNECTED 10:HASHTABLE_LOOKUP 11:L2_NORMALIZATION
  12:L2_POOL_2D 13:LOCAL_RESPONSE_NORMALIZATION 14:LOGISTIC 15:LSH_PROJECTION 16:LSTM 17:MAX_POOL_2D 18:MUL
  19:RELU 20:RELU_N1_TO_1 21:RELU6 22:RESHAPE 23:RESIZE_BILINEAR 24:RNN 25:SOFTMAX 26:SPACE_TO_DEPTH 27:SVDF
  28:TANH 29:CONCAT_EMBEDDINGS 30:SKIP_GRAM 31:CALL 32:CUSTOM 33:EMBEDDING_LOOKUP_SPARSE 34:PAD
  35:UNIDIRECTIONAL_SEQUENCE_RNN 36:GATHER 37:BATCH_TO_SPACE_ND 38:SPACE_TO_BATCH_ND 39:TRANSPOSE 40:MEAN
  41:SUB 42:DIV 43:SQUEEZE 44:UNIDIRECTIONAL_SEQUENCE_LSTM 45:STRIDED_SLICE 46:BIDIRECTIONAL_SEQUENCE_RNN
  47:EXP 48:TOPK_V2 49:SPLIT 50:LOG_SOFTMAX 51:DELEGATE 52:BIDIRECTIONAL_SEQUENCE_LSTM 53:CAST 54:PRELU
  55:MAXIMUM 56:ARG_MAX 57:MINIMUM 58:LESS 59:NEG 60:PADV2 61:GREATER 62:GREATER_EQUAL 63:LESS_EQUAL
  64:SELECT 65:SLICE 66:SIN 67:TRANSPOSE_CONV 68:SPARSE_TO_DENSE 69:TILE 70:EXPAND_DIMS 71:EQUAL
  72:NOT_EQUAL 73:LOG 74:SUM 75:SQRT 76:RSQRT 77:SHAPE 78:POW 79:ARG_MIN 80:FAKE_QUANT 81:REDUCE_PROD
  82:REDUCE_MAX 83:PACK 84:LOGICAL_OR 85:ONE_HOT 86:LOGICAL_AND 87:LOGICAL_NOT 88:UNPACK 89:REDUCE_MIN
  90:FLOOR_DIV 91:REDUCE_ANY 92:SQUARE 93:ZEROS_LIKE 94:FILL 95:FLOOR_MOD 96:RANGE
  97:RESIZE_NEAREST_NEIGHBOR 98:LEAKY_RELU 99:SQUARED_DIFFERENCE 100:MIRROR_PAD 101:ABS 102:SPLIT_V
  103:UNIQUE 104:CEIL 105:REVERSE_V2 106:ADD_N 107:GATHER_ND 108:COS 109:WHERE 110:RANK 111:ELU
  112:REVERSE_SEQUENCE 113:MATRIX_DIAG 114:QUANTIZE 115:MATRIX_SET_DIAG 116:ROUND 117:HARD_SWISH 118:IF
  119:WHILE 120:NON_MAX_SUPPRESSION_V4 121:NON_MAX_SUPPRESSION_V5 122:SCATTER_ND 123:SELECT_V2 124:DENSIFY
  125:SEGMENT_SUM 126:BATCH_MATMUL 127:PLACEHOLDER_FOR_GREATER_OP_CODES 128:CUMSUM 129:CALL_ONCE
  130:BROADCAST_TO 131:RFFT2D 132:CONV_3D 133:IMAG 134:REAL 135:COMPLEX_ABS 136:HASHTABLE 137:HASHTABLE_FIND
  138:HASHTABLE_IMPORT 139:HASHTABLE_SIZE 140:REDUCE_ALL 141:CONV_3D_TRANSPOSE 142:VAR_HANDLE
  143:READ_VARIABLE 144:ASSIGN_VARIABLE 145:BROADCAST_ARGS 146:RANDOM_STANDARD_NORMAL 147:BUCKETIZE
  148:RANDOM_UNIFORM 149:MULTINOMIAL 150:GELU 151:DYNAMIC_UPDATE_SLICE 152:RELU_0_TO_1
  153:UNSORTED_SEGMENT_PROD 154:UNSORTED_SEGMENT_MAX 155:UNSORTED_SEGMENT_SUM 156:ATAN2
  157:UNSORTED_SEGMENT_MIN 158:SIGN 159:BITCAST 160:BITWISE_XOR 161:RIGHT_SHIFT 162:STABLEHLO_LOGISTIC
  163:STABLEHLO_ADD 164:STABLEHLO_DIVIDE 165:STABLEHLO_MULTIPLY 166:STABLEHLO_MAXIMUM 167:STABLEHLO_RESHAPE
  168:STABLEHLO_CLAMP 169:STABLEHLO_CONCATENATE 170:STABLEHLO_BROADCAST_IN_DIM 171:STABLEHLO_CONVOLUTION
  172:STABLEHLO_SLICE 173:STABLEHLO_CUSTOM_CALL 174:STABLEHLO_REDUCE 175:STABLEHLO_ABS 176:STABLEHLO_AND
  177:STABLEHLO_COSINE 178:STABLEHLO_EXPONENTIAL 179:STABLEHLO_FLOOR 180:STABLEHLO_LOG 181:STABLEHLO_MINIMUM
  182:STABLEHLO_NEGATE 183:STABLEHLO_OR 184:STABLEHLO_POWER 185:STABLEHLO_REMAINDER 186:STABLEHLO_RSQRT
  187:STABLEHLO_SELECT 188:STABLEHLO_SUBTRACT 189:STABLEHLO_TANH 190:STABLEHLO_SCATTER 191:STABLEHLO_COMPARE
  192:STABLEHLO_CONVERT 193:STABLEHLO_DYNAMIC_SLICE 194:STABLEHLO_DYNAMIC_UPDATE_SLICE 195:STABLEHLO_PAD
  196:STABLEHLO_IOTA 197:STABLEHLO_DOT_GENERAL 198:STABLEHLO_REDUCE_WINDOW 199:STABLEHLO_SORT
  200:STABLEHLO_WHILE 201:STABLEHLO_GATHER 202:STABLEHLO_TRANSPOSE 203:DILATE
  204:STABLEHLO_RNG_BIT_GENERATOR 205:REDUCE_WINDOW 206:STABLEHLO_COMPOSITE 207:STABLEHLO_SHIFT_LEFT
  208:STABLEHLO_CBRT 209:STABLEHLO_CASE
TensorType 0:FLOAT32 1:FLOAT16 2:INT32 3:UINT8 4:INT64 5:STRING 6:BOOL 7:INT16 8:COMPLEX64 9:INT8 10:FLOAT64
  11:COMPLEX128 12:UINT64 13:RESOURCE 14:VARIANT 15:UINT32 16:UINT16 17:INT4 18:BFLOAT16 19:INT2 20:UINT4
  21:FLOAT8_E4M3FN 22:FLOAT8_E5M2
"""
