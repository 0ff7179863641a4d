/* Windows: how a kernel slides over the spatial dimensions of a tensor [N, C, D1 .. Dn].
 * Convolutions and pools read them from the same attributes: kernel_shape, strides, dilations,
 * pads, auto_pad.
 * The small helpers on float inputs at the end serve all operators of neural networks.
 */
#ifndef COMPILER_ONNX_WINDOW_H
#define COMPILER_ONNX_WINDOW_H

#include "compiler/onnx/import.h"

#define MAX_SPATIAL (MAX_TENSOR_RANK - 2)

/* One spatial dimension. Window o reads positions o * stride + k * dilation - before, 0 <= k <
 * kernel. All but stride and dilation may vary (ir/dim.h). */
typedef struct Slide {
    int64_t in, out;
    int64_t kernel, stride, dilation;
    int64_t span;          /* (kernel - 1) * dilation + 1 */
    int64_t before, after; /* positions of padding, as asked for: a last window may reach further */
} Slide;

/* auto_pad: padding is as `pads` says, none, or as much as gives an output of ceil(input / stride),
 * the odd one behind or before. */
typedef enum AutoPad { AUTO_notset, AUTO_valid, AUTO_same_upper, AUTO_same_lower } AutoPad;

typedef struct Window {
    int n; /* spatial dimensions */
    AutoPad pad;
    bool ceiling; /* the last window may reach past the end */
    Slide dim[MAX_SPATIAL];
} Window;

/* Reads the attributes for an input `v`; `kernel` (n extents) comes from the weights, or is NULL:
 * then kernel_shape must say it. Everything but `out` and automatic padding. False after a report.
 */
bool window_read(Node *n, Window *w, const Value *v, const int64_t *kernel);
/* The same, with padding and output extents of a convolution or pool. `ceiling`: the last window
 * may reach past the end (ceil_mode). */
bool window_place(Node *n, Window *w, const Value *v, const int64_t *kernel, bool ceiling);
/* `v` with as much padding of `fill` as the windows touch; `v` itself if they touch none. */
Value *window_pad(Node *n, const Window *w, Value *v, Scalar fill);
/* Leaves out the taps at both ends of a kernel that read nothing but padding, wherever the window
 * is, as those of a large dilation do: returns the weights, whose dimensions from `first` on are
 * the kernel's, without them (no NaN comes of infinite ones, then). Before window_pad; padding is
 * zeros. */
Value *window_trim(Node *n, Window *w, Value *weights, int first);
/* Adds a reduction coordinate for each kernel dimension and gives the index into the padded tensor
 * in index[0..n-1], for output coordinates that begin at `first`; the kernel coordinates in
 * tap[0..n-1]. */
void window_reduce(Builder *b, const Window *w, int first, const Expr **index, const Expr **tap);
/* A reduction coordinate, or the constant 0 where there is nothing to run over. */
const Expr *reduce_over(Builder *b, int64_t extent);

/* [N, D1 .. Dn, C] as [N, C, D1 .. Dn], and back. */
Value *channels_second(Graph *g, Value *v);
Value *channels_last(Graph *g, Value *v);

/* The type that a float type is computed in: f64 for f64, else f32. */
static inline DType float_work(DType dt) {
    return dt == DT_f64 ? DT_f64 : DT_f32;
}
/* Input i as a float tensor of at least `rank` dimensions; reports and returns NULL otherwise. */
Value *need_float(Node *n, int i, int rank);

#endif
