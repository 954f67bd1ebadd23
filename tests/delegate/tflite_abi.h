/* What a TFLite delegate needs to know about the runtime: the public C structures, declared again in our own words.
 *
 * Field order and types are those of TensorFlow Lite's public header common.h; they have not changed between
 * tflite-runtime 2.14 and ai-edge-litert 2.3. Fields that the test delegate does not use are named by their role and
 * are there for the layout only.
 */
#ifndef EDGEPLACE_TFLITE_ABI_H
#define EDGEPLACE_TFLITE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int TfLiteStatus; /* 0 is well, 1 an error, 2 a delegate's error */
enum { kOk = 0, kError = 1 };
enum { kFloat32 = 1 };           /* TfLiteType */
enum { kMmapRo = 1 };            /* TfLiteAllocationType: a constant of the file */
enum { kFlagsNone = 0 };         /* TfLiteDelegateFlags */

typedef struct {
  int size;
  int data[];
} TfLiteIntArray;

typedef struct {
  float scale;
  int32_t zero_point;
} TfLiteQuantizationParams;

typedef struct {
  int type;
  void* params;
} TfLiteQuantization;

struct TfLiteContext;
struct TfLiteDelegate;

typedef struct TfLiteTensor {
  int type;
  union {
    void* data;
    float* f;
  } data;
  TfLiteIntArray* dims;
  TfLiteQuantizationParams params;
  int allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  struct TfLiteDelegate* delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  TfLiteQuantization quantization;
  void* sparsity;
  const TfLiteIntArray* dims_signature;
} TfLiteTensor;

typedef struct TfLiteNode {
  TfLiteIntArray* inputs;
  TfLiteIntArray* outputs;
  TfLiteIntArray* intermediates;
  TfLiteIntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  struct TfLiteDelegate* delegate;
  bool might_have_side_effect;
} TfLiteNode;

typedef struct TfLiteRegistration {
  void* (*init)(struct TfLiteContext*, const char* buffer, size_t length);
  void (*free)(struct TfLiteContext*, void* state);
  TfLiteStatus (*prepare)(struct TfLiteContext*, TfLiteNode*);
  TfLiteStatus (*invoke)(struct TfLiteContext*, TfLiteNode*);
  const char* (*profiling_string)(const struct TfLiteContext*, const TfLiteNode*);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* registration_external;
  void* async_kernel;
  uint64_t inplace_operator;
} TfLiteRegistration;

/* Only the beginning: a context is always reached through a pointer. */
typedef struct TfLiteContext {
  size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(struct TfLiteContext*, TfLiteIntArray** plan);
  TfLiteTensor* tensors;
  void* impl;
  TfLiteStatus (*ResizeTensor)(struct TfLiteContext*, TfLiteTensor*, TfLiteIntArray*);
  void (*ReportError)(struct TfLiteContext*, const char* format, ...);
  TfLiteStatus (*AddTensors)(struct TfLiteContext*, int count, int* first);
  TfLiteStatus (*GetNodeAndRegistration)(struct TfLiteContext*, int node, TfLiteNode**, TfLiteRegistration**);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(struct TfLiteContext*, TfLiteRegistration,
                                                        const TfLiteIntArray* nodes, struct TfLiteDelegate*);
} TfLiteContext;

/* What a delegate kernel's init gets as its buffer. */
typedef struct {
  struct TfLiteDelegate* delegate;
  TfLiteIntArray* nodes_to_replace;
  TfLiteIntArray* input_tensors;
  TfLiteIntArray* output_tensors;
} TfLiteDelegateParams;

typedef struct TfLiteDelegate {
  void* data;
  TfLiteStatus (*Prepare)(TfLiteContext*, struct TfLiteDelegate*);
  void* copy_from_buffer_handle;
  void* copy_to_buffer_handle;
  void* free_buffer_handle;
  int64_t flags;
  void* opaque_delegate_builder;
} TfLiteDelegate;

#endif
