/* An external delegate for tests: it claims the operators it is told to, and behaves or misbehaves as it is told to.
 *
 * Options (all texts):
 *   ops         operators to claim, by name, with commas: ADD,MUL,SUB,RELU,RELU6,LOGISTIC,TANH,ABS,NEG; or "all" of
 *               these, or "none". Only float32 nodes are claimed. Default: all.
 *   max_nodes   claim at most this many nodes.
 *   mode        what to do (default: right)
 *                 right             compute what the operator means
 *                 wrong             add `offset` (default 1) after multiplying by `scale` (default 1)
 *                 nan               give NaN
 *                 refuse_create     make no delegate
 *                 refuse_prepare    fail when the graph is prepared
 *                 refuse_nodes      claim the nodes, then fail to prepare them
 *                 fail_invoke       fail when run
 *                 crash_prepare, crash_invoke      SIGSEGV
 *                 exit_prepare, exit_invoke        exit(0)
 *                 hang_prepare, hang_invoke        never come back
 *                 oom_invoke        take memory until there is no more (or `cap_mb`, default 256), then fail
 *                 kill_invoke       SIGKILL, as the kernel's out-of-memory killer does
 *                 print             write to standard output when prepared and run, and compute right
 *   after_runs  misbehave only from this run on (default 0: the first).
 *   delay_us    busy time added to each run of a partition, so that a placement's speed is known.
 */
#include "tflite_abi.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kMaxInputs = 2, kMaxRank = 8 };
enum { kActivationNone = 0, kActivationRelu = 1, kActivationReluN1To1 = 2, kActivationRelu6 = 3 };

typedef struct {
  const char* name;
  int code; /* the schema's BuiltinOperator */
  int inputs;
} Operator;

static const Operator kOperators[] = {
    {"ADD", 0, 2},       {"MUL", 18, 2},  {"SUB", 41, 2}, {"RELU", 19, 1}, {"RELU6", 21, 1},
    {"LOGISTIC", 14, 1}, {"TANH", 28, 1}, {"ABS", 101, 1}, {"NEG", 59, 1},
};
enum { kOperatorCount = sizeof(kOperators) / sizeof(kOperators[0]) };

typedef struct {
  TfLiteDelegate delegate;
  bool claimed[kOperatorCount];
  int max_nodes;
  char mode[32];
  float scale, offset;
  long after_runs, delay_us, cap_mb;
} Settings;

typedef struct {
  int operator_number, activation;
  int inputs[kMaxInputs], input_count, output;
} Work;

typedef struct {
  Settings* settings;
  Work* works;
  int work_count;
  float** buffers; /* by tensor number; only for tensors that live inside the partition */
  size_t tensor_count;
  long runs;
} Kernel;

static bool mode_is(const Settings* settings, const char* mode) { return strcmp(settings->mode, mode) == 0; }

static void misbehave(const Settings* settings, const char* stage) {
  char mode[40];
  snprintf(mode, sizeof(mode), "crash_%s", stage);
  if (mode_is(settings, mode)) raise(SIGSEGV);
  snprintf(mode, sizeof(mode), "exit_%s", stage);
  if (mode_is(settings, mode)) exit(0);
  snprintf(mode, sizeof(mode), "hang_%s", stage);
  while (mode_is(settings, mode)) pause();
  snprintf(mode, sizeof(mode), "kill_%s", stage);
  if (mode_is(settings, mode)) raise(SIGKILL);
  if (mode_is(settings, "print")) {
    printf("edgeplace test delegate: %s\n", stage);
    fflush(stdout);
  }
}

/* Takes memory, and touches it, until there is no more or the cap is reached. */
static void take_memory(long cap_mb) {
  const size_t piece = 1 << 20;
  for (long taken = 0; taken < cap_mb; ++taken) {
    char* memory = malloc(piece);
    if (memory == NULL) return;
    memset(memory, 1, piece);
  }
}

static void spend_us(long duration_us) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000000L + (now.tv_nsec - start.tv_nsec) / 1000L < duration_us);
}

static int operator_number(int code) {
  for (int i = 0; i < kOperatorCount; ++i)
    if (kOperators[i].code == code) return i;
  return -1;
}

static size_t element_count(const TfLiteTensor* tensor) {
  size_t count = 1;
  for (int i = 0; i < tensor->dims->size; ++i) count *= (size_t)tensor->dims->data[i];
  return count;
}

static bool is_inside(const TfLiteIntArray* tensors, int tensor) {
  for (int i = 0; i < tensors->size; ++i)
    if (tensors->data[i] == tensor) return true;
  return false;
}

/* Kernel of one partition ------------------------------------------------------------------------------------- */

static void* kernel_init(TfLiteContext* context, const char* buffer, size_t length) {
  (void)length;
  const TfLiteDelegateParams* params = (const TfLiteDelegateParams*)buffer;
  Kernel* kernel = calloc(1, sizeof(Kernel));
  kernel->settings = params->delegate->data;
  kernel->work_count = params->nodes_to_replace->size;
  kernel->works = calloc((size_t)kernel->work_count, sizeof(Work));
  kernel->tensor_count = context->tensors_size;
  kernel->buffers = calloc(kernel->tensor_count, sizeof(float*));
  for (int i = 0; i < kernel->work_count; ++i) {
    TfLiteNode* node;
    TfLiteRegistration* registration;
    context->GetNodeAndRegistration(context, params->nodes_to_replace->data[i], &node, &registration);
    Work* work = &kernel->works[i];
    work->operator_number = operator_number(registration->builtin_code);
    work->input_count = kOperators[work->operator_number].inputs;
    for (int k = 0; k < work->input_count; ++k) work->inputs[k] = node->inputs->data[k];
    work->output = node->outputs->data[0];
    /* ADD, MUL and SUB: their parameters begin with the fused activation. */
    work->activation = work->input_count == 2 && node->builtin_data ? *(const int*)node->builtin_data : kActivationNone;
    if (!is_inside(params->output_tensors, work->output))
      kernel->buffers[work->output] = malloc(element_count(&context->tensors[work->output]) * sizeof(float));
  }
  return kernel;
}

static void kernel_free(TfLiteContext* context, void* state) {
  (void)context;
  Kernel* kernel = state;
  for (size_t i = 0; i < kernel->tensor_count; ++i) free(kernel->buffers[i]);
  free(kernel->buffers);
  free(kernel->works);
  free(kernel);
}

static TfLiteStatus kernel_prepare(TfLiteContext* context, TfLiteNode* node) {
  const Kernel* kernel = node->user_data;
  if (mode_is(kernel->settings, "refuse_nodes")) {
    context->ReportError(context, "edgeplace test delegate: nodes refused");
    return kError;
  }
  return kOk;
}

static float* values_of(TfLiteContext* context, const Kernel* kernel, int tensor) {
  return kernel->buffers[tensor] ? kernel->buffers[tensor] : context->tensors[tensor].data.f;
}

/* Position in `tensor` of the element that belongs to position `at` of the output, under numpy's broadcasting. */
static size_t broadcast_position(const TfLiteTensor* tensor, const TfLiteTensor* output, size_t at) {
  size_t position = 0, stride = 1;
  for (int back = 1; back <= output->dims->size; ++back) {
    const size_t size = (size_t)output->dims->data[output->dims->size - back];
    const size_t coordinate = at % size;
    at /= size;
    if (back > tensor->dims->size) continue;
    const size_t own = (size_t)tensor->dims->data[tensor->dims->size - back];
    position += (own == 1 ? 0 : coordinate) * stride;
    stride *= own;
  }
  return position;
}

static float clamp(float value, float low, float high) { return value < low ? low : value > high ? high : value; }

static float activate(float value, int activation) {
  switch (activation) {
    case kActivationRelu: return value < 0 ? 0 : value;
    case kActivationReluN1To1: return clamp(value, -1, 1);
    case kActivationRelu6: return clamp(value, 0, 6);
    default: return value;
  }
}

static float apply(int code, float a, float b) {
  switch (code) {
    case 0: return a + b;
    case 18: return a * b;
    case 41: return a - b;
    case 19: return a < 0 ? 0 : a;
    case 21: return clamp(a, 0, 6);
    case 14: return 1.0f / (1.0f + expf(-a));
    case 28: return tanhf(a);
    case 101: return fabsf(a);
    default: return -a;
  }
}

static void compute(TfLiteContext* context, const Kernel* kernel, const Work* work, bool misbehaves) {
  const Settings* settings = kernel->settings;
  const TfLiteTensor* output = &context->tensors[work->output];
  const TfLiteTensor* first = &context->tensors[work->inputs[0]];
  const TfLiteTensor* second = work->input_count == 2 ? &context->tensors[work->inputs[1]] : NULL;
  const float* a = values_of(context, kernel, work->inputs[0]);
  const float* b = second ? values_of(context, kernel, work->inputs[1]) : NULL;
  float* result = values_of(context, kernel, work->output);
  const int code = kOperators[work->operator_number].code;
  const bool is_wrong = misbehaves && mode_is(settings, "wrong");
  const bool is_nan = misbehaves && mode_is(settings, "nan");
  const size_t count = element_count(output);
  for (size_t i = 0; i < count; ++i) {
    const float left = a[broadcast_position(first, output, i)];
    const float right = second ? b[broadcast_position(second, output, i)] : 0;
    const float value = activate(apply(code, left, right), work->activation);
    result[i] = is_nan ? NAN : is_wrong ? value * settings->scale + settings->offset : value;
  }
}

static TfLiteStatus kernel_invoke(TfLiteContext* context, TfLiteNode* node) {
  Kernel* kernel = node->user_data;
  const Settings* settings = kernel->settings;
  const bool misbehaves = kernel->runs++ >= settings->after_runs;
  if (misbehaves) {
    misbehave(settings, "invoke");
    if (mode_is(settings, "fail_invoke")) {
      context->ReportError(context, "edgeplace test delegate: run failed");
      return kError;
    }
    if (mode_is(settings, "oom_invoke")) {
      take_memory(settings->cap_mb);
      context->ReportError(context, "edgeplace test delegate: out of memory");
      return kError;
    }
  }
  for (int i = 0; i < kernel->work_count; ++i) compute(context, kernel, &kernel->works[i], misbehaves);
  if (settings->delay_us > 0) spend_us(settings->delay_us);
  return kOk;
}

/* The delegate ------------------------------------------------------------------------------------------------ */

static bool may_claim(const Settings* settings, TfLiteContext* context, const TfLiteNode* node, int code) {
  const int number = operator_number(code);
  if (number < 0 || !settings->claimed[number] || node->inputs->size != kOperators[number].inputs) return false;
  for (int i = 0; i < node->inputs->size; ++i)
    if (node->inputs->data[i] < 0 || context->tensors[node->inputs->data[i]].type != kFloat32) return false;
  return context->tensors[node->outputs->data[0]].type == kFloat32;
}

static TfLiteStatus delegate_prepare(TfLiteContext* context, TfLiteDelegate* delegate) {
  Settings* settings = delegate->data;
  misbehave(settings, "prepare");
  if (mode_is(settings, "refuse_prepare")) {
    context->ReportError(context, "edgeplace test delegate: graph refused");
    return kError;
  }
  TfLiteIntArray* plan;
  if (context->GetExecutionPlan(context, &plan) != kOk) return kError;
  TfLiteIntArray* nodes = malloc(sizeof(TfLiteIntArray) + (size_t)plan->size * sizeof(int));
  nodes->size = 0;
  for (int i = 0; i < plan->size && nodes->size < settings->max_nodes; ++i) {
    TfLiteNode* node;
    TfLiteRegistration* registration;
    if (context->GetNodeAndRegistration(context, plan->data[i], &node, &registration) != kOk) continue;
    if (may_claim(settings, context, node, registration->builtin_code)) nodes->data[nodes->size++] = plan->data[i];
  }
  TfLiteRegistration kernel;
  memset(&kernel, 0, sizeof(kernel));
  kernel.init = kernel_init;
  kernel.free = kernel_free;
  kernel.prepare = kernel_prepare;
  kernel.invoke = kernel_invoke;
  kernel.custom_name = "EdgePlaceTestDelegate";
  kernel.version = 1;
  const TfLiteStatus status = nodes->size
                                  ? context->ReplaceNodeSubsetsWithDelegateKernels(context, kernel, nodes, delegate)
                                  : kOk;
  free(nodes);
  return status;
}

static void claim_operators(Settings* settings, const char* names) {
  char* copy = strdup(names);
  for (char* name = strtok(copy, ","); name != NULL; name = strtok(NULL, ","))
    for (int i = 0; i < kOperatorCount; ++i)
      if (strcmp(name, "all") == 0 || strcmp(name, kOperators[i].name) == 0) settings->claimed[i] = true;
  free(copy);
}

TfLiteDelegate* tflite_plugin_create_delegate(char** keys, char** values, size_t count,
                                              void (*report_error)(const char*)) {
  Settings* settings = calloc(1, sizeof(Settings));
  const char* operators = "all";
  settings->max_nodes = 1 << 30;
  settings->scale = 1;
  settings->offset = 1;
  settings->cap_mb = 256;
  strcpy(settings->mode, "right");
  for (size_t i = 0; i < count; ++i) {
    const char* key = keys[i];
    const char* value = values[i];
    if (strcmp(key, "ops") == 0) operators = value;
    else if (strcmp(key, "max_nodes") == 0) settings->max_nodes = atoi(value);
    else if (strcmp(key, "mode") == 0) snprintf(settings->mode, sizeof(settings->mode), "%s", value);
    else if (strcmp(key, "scale") == 0) settings->scale = (float)atof(value);
    else if (strcmp(key, "offset") == 0) settings->offset = (float)atof(value);
    else if (strcmp(key, "after_runs") == 0) settings->after_runs = atol(value);
    else if (strcmp(key, "delay_us") == 0) settings->delay_us = atol(value);
    else if (strcmp(key, "cap_mb") == 0) settings->cap_mb = atol(value);
    else {
      if (report_error) report_error("edgeplace test delegate: unknown option");
      free(settings);
      return NULL;
    }
  }
  if (mode_is(settings, "refuse_create")) {
    if (report_error) report_error("edgeplace test delegate: creation refused");
    free(settings);
    return NULL;
  }
  claim_operators(settings, operators);
  settings->delegate.data = settings;
  settings->delegate.Prepare = delegate_prepare;
  settings->delegate.flags = kFlagsNone;
  return &settings->delegate;
}

void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {
  if (delegate != NULL) free(delegate->data);
}
