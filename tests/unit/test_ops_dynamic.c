/* Operators whose results have as many elements as a run finds (--dim NAME=LOW..HIGH, or the number
 * of elements as a bound): the interpreter and libraries of all targets give what is written here.
 * Inputs hold what no model should have, too: nothing is read or written outside of a tensor.
 * Vulkan is passed over with SKIP_VULKAN=1. */
#include "codegen/share.h"
#include "compiler/driver.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "tests/unit/model_text.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct Row {
    const char *text, *dims;
    const char *inputs[6]; /* the extents of dimensions behind the others */
    const char *result;
} Row;

static const Row rows[] = {
    /* NonZero, Compress: as many as there are */
    {"input x f32[2,3] output y i64[2,n] a = Relu(x) y = NonZero(a)",
     NULL,
     {"0 1 -1 2 0 3"},
     "i64[2, 3] 0 1 1 1 0 2"},
    {"input x f32[2,3] output y i64[2,n] a = Relu(x) y = NonZero(a)", NULL, {""}, "i64[2, 0] "},
    {"input x f32[B,2] output y i64[2,n] a = Relu(x) y = NonZero(a)",
     "B=0..3",
     {"1 0 0 2", "2"},
     "i64[2, 2] 0 1 0 1"},
    /* rows that a run leaves out of a sum are 0, and not left out of the result */
    {"opset 17 input x f32[4,1,1] input n i32[1] init w f32[1,2,1] = 1 2 init r f32[1,2,2] = 0 0 0 "
     "0 output z "
     "y = RNN(x, w, r, _, n) {hidden_size=2 activations=[\"Relu\"]} init a i64[1] = -1 z = "
     "ReduceSum(y, a) "
     "{keepdims=0}",
     NULL,
     {"1 2 3 4", "2"},
     "f32[4, 1, 1] 3 6 0 0"},
    /* a depth that varies is what the attributes say */
    {"opset 17 opset com.microsoft 1 input x f32[B,D] init w u8[1,1,8] = 152 152 152 152 152 152 "
     "152 152 init s f32[1] = 1 output y "
     "y = com.microsoft:MatMulNBits(x, w, s) {K=16 N=1 block_size=16}",
     "B=1..2 D=8..32",
     {"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "1", "16"},
     "f32[1, 1] 72"},
    {"opset 17 opset com.microsoft 1 input x f32[B,D] init w u8[1,1,8] = 152 152 152 152 152 152 "
     "152 152 init s f32[1] = 1 output y "
     "y = com.microsoft:MatMulNBits(x, w, s) {K=16 N=1 block_size=16}",
     "B=1..2 D=8..32",
     {"1 2 3 4 5 6 7 8", "1", "8"},
     "fault: MatMulNBits(y): extents that must be equal differ"},
    /* a window has room in what a run gives */
    {"input x f32[1,1,H] output y y = MaxPool(x) {kernel_shape=[2] strides=[2]}",
     "H=1..4",
     {"1 3 2", "3"},
     "f32[1, 1, 1] 3"},
    {"input x f32[1,1,H] output y y = MaxPool(x) {kernel_shape=[2] strides=[2]}",
     "H=1..4",
     {"1", "1"},
     "fault: MaxPool(y): an extent is out of its range"},
    /* sums and the largest along rows that are vectors go no further than a run does */
    {"opset 13 input x f32[2,B] output y y = Softmax(x) {axis=1}",
     "B=1..40",
     {"1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "20"},
     "f32[2, 20] 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 "
     "0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 "
     "0.05 0.05 0.05 0.05 0.05 0.05"},
    {"input x f32[2,B] init a i64[1] = 1 output y output z y = ReduceMax(x) {axes=[1] keepdims=0} "
     "z = ReduceMin(x) {axes=[1] keepdims=0}",
     "B=1..40",
     {"-7 -2 -3 -4 -5 -6 -1 -8 -9 -9 -9 -9 -9 -9 -9 -9 -9 -2 1 2 3 4 5 6 7 8 9 9 9 9 9 9 9 9 9 12",
      "18"},
     "f32[2] -1 12; f32[2] -9 1"},
    /* the depth of a product, and its rows */
    {"input x f32[B,B] input w f32[B,3] output y y = MatMul(x, w)",
     "B=1..40",
     {"1 2 3 4", "1 0 1 0 1 1", "2"},
     "f32[2, 3] 1 2 3 3 4 7"},
    /* images of which a run has as many as it says, padded in place */
    {"opset 13 input x f32[B,1,2,2] init v f32[1,1,3,3] = 0 0 0 0 2 0 0 0 1 output y a = Relu(x) "
     "b = Mul(a, a) y = Conv(b, v) {pads=[1,1,1,1]}",
     "B=1..3",
     {"1 2 3 4 0 1 0 1", "2"},
     "f32[2, 1, 2, 2] 18 8 18 32 1 2 0 2"},
    /* an extent is never -1, as exporters of Expand ask */
    {"opset 13 input x f32[1,S,2] init m i64[3] = -1 -1 -1 init o i64[3] = 1 1 1 "
     "init v f32[1,1,2] = 1 2 init i i64[2] = 0 1 init k i64[2] = -1 1 s = Shape(x) c = Equal(s, "
     "m) "
     "w = Where(c, o, s) e = Expand(v, w) a = Add(x, e) f = Shape(e) g = Gather(f, i) "
     "h = Concat(g, k) {axis=0} output y y = Reshape(a, h)",
     "S=1..60000",
     {"1 2 3 4", "2"},
     "f32[1, 2, 2, 1] 2 4 4 6"},
    /* one result as two outputs */
    {"input x f32[2,B] output y output z y = Relu(x) z = Identity(y)",
     "B=1..3",
     {"1 2 3 4", "2"},
     "f32[2, 2] 1 2 3 4; f32[2, 2] 1 2 3 4"},
    /* no more, and no less, than what --dim says */
    {"input x f32[6] output y i64[1,n] y = NonZero(x)",
     "n=1..3",
     {"1 0 3 4 0 0"},
     "i64[1, 3] 0 2 3"},
    {"input x f32[6] output y i64[1,n] y = NonZero(x)",
     "n=1..3",
     {"1 0 3 4 5 6"},
     "fault: NonZero(y): a computed extent is out of its range"},
    {"input x f32[6] output y i64[1,n] y = NonZero(x)",
     "n=1..3",
     {""},
     "fault: NonZero(y): a computed extent is out of its range"},
    {"input x f32[6] output y y = NonZero(x)", "y.1=3", {"1 0 3 0 5 0"}, "i64[1, 3] 0 2 4"},
    {"input x f32[6] output y y = NonZero(x)", "y.1=4", {"1 0 3 0 5 0"}, "i64[1, 4] 0 2 4 0"},
    {"input x f32[6] output y y = NonZero(x)",
     "y.1=2",
     {"1 0 3 0 5 0"},
     "fault: NonZero(y): a computed extent is out of its range"},
    {"input x f32[B,2] input c bool[C] output y z = Compress(x, c) {axis=0} "
     "y = ReduceSum(z) {keepdims=0}",
     "B=1..4 C=0..6",
     {"1 2 3 4 5 6", "0 1 1 1 1", "3", "5"},
     "f32[] 18"},
    {"input x f32[B,2] input c bool[C] output y f32[n,2] y = Compress(x, c) {axis=0}",
     "B=1..4 C=0..6",
     {"1 2 3 4 5 6", "1 0 1 1 1 1", "3", "6"},
     "f32[2, 2] 1 2 5 6"},
    {"input x i64[B] output y i64[n] output i i64[n] output r output c i64[n] y, i, r, c = "
     "Unique(x)",
     "B=1..6",
     {"7 3 7 7 3", "5"},
     "i64[2] 3 7; i64[2] 1 0; i64[5] 1 0 1 1 0; i64[2] 2 3"},
    {"input x f32[2,B] init k i64[1] = 2 output y y, i = TopK(x, k)",
     "B=1..5",
     {"1 5 3 2 0 9", "3"},
     "f32[2, 2] 5 3 9 2"},
    {"input x f32[2,B] init k i64[1] = 2 output y y, i = TopK(x, k)",
     "B=1..5",
     {"1 5", "1"},
     "fault: TopK(y): an extent is out of its range"},
    {"input x f32[2,B] input k i64[1] output y output i y, i = TopK(x, k)",
     "B=1..5",
     {"1 5 3 2 0 9", "2", "3"},
     "f32[2, 2] 5 3 9 2; i64[2, 2] 1 2 2 0"},
    {"input x f32[2,B] input k i64[1] output y output i y, i = TopK(x, k)",
     "B=1..5",
     {"1 5 3 2 0 9", "9000000000", "3"},
     "fault: TopK(y): a computed extent is out of its range"},
    {"input x f32[2,B] input k i64[1] output y y, i = TopK(x, k)",
     "B=1..5",
     {"1 5 3 2 0 9", "-1", "3"},
     "fault: TopK(y): a computed extent is out of its range"},
    /* of so many that the last of them is looked for first, where a run has few */
    {"input x f32[2,B] init k i64[1] = 3 output y output i y, i = TopK(x, k)",
     "B=3..3000",
     {"1 5 3 5 2 9 9 -1 9 9", "5"},
     "f32[2, 3] 5 5 3 9 9 9; i64[2, 3] 1 3 2 0 1 3"},
    {"input x i64[B,2] input k i64[1] output y output i "
     "y, i = TopK(x, k) {axis=0 largest=0}",
     "B=1..3000",
     {"7 -5000000000 3 4 7 4 -9000000000 0 3 2", "3", "5"},
     "i64[3, 2] -9000000000 -5000000000 3 0 3 2; i64[3, 2] 3 0 1 3 4 4"},
    {"input x f32[2,B] input k i64[1] output y output i y, i = TopK(x, k)",
     "B=1..3000",
     {"1 5 3 2 0 9", "4", "3"},
     "fault: TopK(y): an extent is out of its range"},
    {"input b f32[1,B,4] input s f32[1,1,B] init m i64[1] = 9 init i f32[1] = 0.5 "
     "output y i64[n,3] y = NonMaxSuppression(b, s, m, i)",
     "B=0..4",
     {"0 0 1 1 0 0 1 0.9 2 2 3 3", "1 2 3", "3"},
     "i64[2, 3] 0 0 2 0 0 1"},
    {"input b f32[1,B,4] input s f32[1,1,B] init m i64[1] = 9000000000000000000 init i f32[1] = "
     "0.5 "
     "output y i64[n,3] y = NonMaxSuppression(b, s, m, i)",
     "B=0..4",
     {"0 0 1 1 0 0 1 0.9 2 2 3 3", "1 2 3", "3"},
     "i64[2, 3] 0 0 2 0 0 1"},
    /* of each class what has a score above the threshold, which nothing may have */
    {"input b f32[1,B,4] input s f32[1,2,B] init m i64[1] = 9 init i f32[1] = 0.5 "
     "init t f32[1] = 0.5 output y i64[n,3] y = NonMaxSuppression(b, s, m, i, t)",
     "B=0..4",
     {"0 0 1 1 0 0 1 0.9 2 2 3 3", "0.5 0.6 0.4 0.8 0.7 0.9", "3"},
     "i64[3, 3] 0 0 1 0 1 2 0 1 0"},
    {"input b f32[1,B,4] input s f32[1,2,B] init m i64[1] = 9 init i f32[1] = 0.5 "
     "init t f32[1] = 0.5 output y i64[n,3] y = NonMaxSuppression(b, s, m, i, t)",
     "B=0..4",
     {"0 0 1 1 0 0 1 0.9 2 2 3 3", "0.5 0.1 0.4 nan 0.2 0.3", "3"},
     "i64[0, 3] "},
    /* of two batches one has more boxes than the other */
    {"input b f32[2,B,4] input s f32[2,1,B] init m i64[1] = 1 init i f32[1] = 0.5 "
     "init t f32[1] = 0 output y i64[n,3] y = NonMaxSuppression(b, s, m, i, t)",
     "B=0..4",
     {"0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7", "0 0.5 1 2", "2"},
     "i64[2, 3] 0 0 1 1 0 1"},
    {"input b f32[1,3,4] input s f32[1,1,3] init m i64[1] = 9 "
     "output y i64[n,3] y = NonMaxSuppression(b, s, m)",
     "n=0..2",
     {"0 0 1 1 4 4 5 5 2 2 3 3", "1 2 3"},
     "fault: NonMaxSuppression(y): a computed extent is out of its range"},
    /* sizes that hang on no dimension that varies, and sizes that a run computes */
    {"opset 17 input x f32[B,1,1,2] init w f32[1,1,1,1] = 5 init i i64[2] = 2 3 init o i64[2] = 1 "
     "1 "
     "s = Shape(x) h = Gather(s, i) z = Concat(o, h) {axis=0} r = Resize(w, _, _, z) "
     "{mode=\"nearest\"} output y y = Add(x, r)",
     "B=1..3",
     {"1 2 3 4", "2"},
     "f32[2, 1, 1, 2] 6 7 8 9"},
    {"opset 17 input x f32[1,1,2,2] input s i64[4] output y f32[1,1,H,W] y = Resize(x, _, _, s) "
     "{mode=\"nearest\"}",
     "H=1..4 W=0..4",
     {"1 2 3 4", "1 1 4 2"},
     "f32[1, 1, 4, 2] 1 2 1 2 3 4 3 4"},
    {"opset 17 input x f32[1,1,2,2] input s i64[4] output y f32[1,1,H,W] y = Resize(x, _, _, s) "
     "{mode=\"nearest\"}",
     "H=1..4 W=0..4",
     {"1 2 3 4", "1 1 5 2"},
     "fault: Resize(y): a computed extent is out of its range"},
    {"opset 17 input x f32[4] input s f32[1] output y f32[n] y = Resize(x, _, s) "
     "{mode=\"nearest\"}",
     "n=0..8",
     {"1 2 3 4", "0.5"},
     "f32[2] 1 3"},
    /* shapes, bounds and lengths that a run computes */
    {"input x f32[1,2] input s i64[2] output y f32[m,2] y = Expand(x, s)",
     "m=0..3",
     {"1 2", "0 2"},
     "f32[0, 2] "},
    {"input x f32[1,2] input s i64[2] output y f32[m,2] y = Expand(x, s)",
     "m=0..3",
     {"1 2", "2 1"},
     "f32[2, 2] 1 2 1 2"},
    {"input a i64[] input b i64[] input d i64[] output y i64[n] y = Range(a, b, d)",
     "n=0..8",
     {"5", "-9", "-2"},
     "i64[7] 5 3 1 -1 -3 -5 -7"},
    {"input a i64[] input b i64[] input d i64[] output y i64[n] y = Range(a, b, d)",
     "n=0..6",
     {"5", "-9", "-2"},
     "fault: Range(y): a computed extent is out of its range"},
    {"input a i64[] input b i64[] input d i64[] output y i64[n] y = Range(a, b, d)",
     "n=0..4",
     {"-9e18", "9e18", "1"},
     "fault: Range(y): a computed extent is out of its range"},
    {"input a i64[] input b i64[] input d i64[] output y i64[n] y = Range(a, b, d)",
     "n=0..4",
     {"-9223372036854775808", "9e18", "0"},
     "i64[0] "},
    {"input a f32[] input b f32[] input d f32[] output y y = Range(a, b, d)",
     "y.0=0..4",
     {"0.5", "2", "0.5"},
     "f32[3] 0.5 1 1.5"},
    {"input a f32[] input b f32[] input d f32[] output y y = Range(a, b, d)",
     "y.0=0..4",
     {"0.5", "nan", "0"},
     "f32[0] "},
    {"input x f32[1,B] input s i64[2] output y f32[p,q] y = Expand(x, s)",
     "B=1..3 p=0..2 q=1..4",
     {"1 2 3", "2 1", "3"},
     "f32[2, 3] 1 2 3 1 2 3"},
    {"input x f32[1,B] input s i64[2] output y f32[p,q] y = Expand(x, s)",
     "B=1..3 p=0..2 q=1..4",
     {"1 2 3", "9e18 9e18", "3"},
     "fault: Expand(y): the shape asked for does not broadcast"},
    {"input s i64[2] output y f32[p,q] y = ConstantOfShape(s)",
     "p=1..2 q=0..2",
     {"-5 5000000000"},
     "fault: ConstantOfShape(y): a computed extent is out of its range"},
    {"input x f32[2] input s i64[1] output y f32[p] y = Tile(x, s)",
     "p=0..5",
     {"1 2", "2"},
     "f32[4] 1 2 1 2"},
    {"input x f32[2] input s i64[1] output y f32[p] y = Tile(x, s)",
     "p=0..5",
     {"1 2", "-9223372036854775808"},
     "fault: Tile(y): a computed extent is out of its range"},
    {"input x f32[B,2] input s i64[2] output y f32[p,q] y = Reshape(x, s)",
     "B=0..3",
     {"1 2 3 4 5 6", "-1 3", "3"},
     "f32[2, 3] 1 2 3 4 5 6"},
    {"input x f32[B,2] input s i64[2] output y f32[p,q] y = Reshape(x, s)",
     "B=0..3",
     {"1 2 3 4 5 6", "0 2", "2"},
     "f32[2, 2] 1 2 3 4"},
    {"input x f32[B,2] input s i64[2] output y z = Reshape(x, s) y = ReduceSum(z) {keepdims=0}",
     "B=0..3 z.0=0..4 z.1=0..4",
     {"1 1 1 1 1 1", "9e18 9e18", "3"},
     "fault: Reshape(z): a computed extent is out of its range"},
    {"input x f32[B,2] input s i64[2] output y y = Reshape(x, s)",
     "B=0..3 y.0=0..4 y.1=0..4",
     {"1 1 1 1 1 1", "2 2", "3"},
     "fault: Reshape(y): extents that must be equal differ"},
    {"input x f32[B,2] input s i64[2] output y y = Reshape(x, s)",
     "B=0..3 y.0=0..4 y.1=0..4",
     {"", "0 -1", "0"},
     "f32[0, 0] "},
    {"input x f32[B,2] input s i64[3] output y y = Reshape(x, s)",
     "B=0..3 y.0=0..4 y.1=0..4 y.2=0..4",
     {"1 1 1 1 1 1", "4294967296 4294967296 -1", "3"},
     "fault: Reshape(y): a computed extent is out of its range"},
    {"input x f32[B,4] input s i64[1] init m i64[1] = 2 output y f32[2,q] "
     "t = Concat(m, s) {axis=0} y = Reshape(x, t)",
     "B=1..2",
     {"1 2 3 4", "-1", "1"},
     "f32[2, 2] 1 2 3 4"},
    {"input x f32[B,4] input s i64[1] init m i64[1] = 2 output y f32[2,q] "
     "t = Concat(m, s) {axis=0} y = Reshape(x, t)",
     "B=1..2",
     {"1 2 3 4", "-77", "1"},
     "fault: Reshape(y): the shape asked for has another number of elements"},
    {"input x f32[B] input z f32[C] output y y = Reshape(x, s) s = Shape(z)",
     "B=1..2 C=0..5",
     {"1 2", "", "2", "2"},
     "f32[2] 1 2"},
    {"input x f32[B] input z f32[C] output y y = Reshape(x, s) s = Shape(z)",
     "B=1..2 C=0..5",
     {"1 2", "", "2", "5"},
     "fault: Reshape(y): extents that must be equal differ"},
    {"input x f32[B] input z f32[C] output y y = Add(x, z)",
     "B=0..4 C=0..4",
     {"1 2", "10", "2", "1"},
     "f32[2] 11 12"},
    {"input x f32[B] input z f32[C] output y y = Add(x, z)",
     "B=0..4 C=0..4",
     {"1", "", "1", "0"},
     "f32[0] "},
    {"input x f32[B] input z f32[C] output y y = Add(x, z)",
     "B=0..4 C=0..4",
     {"1 2", "1 2 3", "2", "3"},
     "fault: Add(y): extents do not broadcast"},
    {"input x f32[1,B,1,2] input w f32[2,C,1,1] init b f32[2] = 1 2 output y y = Conv(x, w, b)",
     "B=1..2 C=1..9",
     {"1 2", "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9", "1", "9"},
     "fault: Conv(y): extents that must be equal differ"},
    {"input x f32[1,1,1,2] input w f32[B,1,1,1] init b f32[2] = 1 2 output y y = Conv(x, w, b)",
     "B=1..99",
     {"1 2", "1 2 3", "3"},
     "fault: Conv(y): extents that must be equal differ"},
    {"input x f32[2,B] input i i64[C,B] input u f32[C,B] output y y = ScatterElements(x, i, u) "
     "{axis=1}",
     "B=1..3 C=1..99",
     {"1 2", "0 0 0 0", "1 2 3 4", "1", "4"},
     "fault: ScatterElements(y): an extent is out of its range"},
    {"input x f32[2,B] input z f32[C,2] output y y = MatMul(x, z)",
     "B=0..4 C=0..4",
     {"1 2 3 4", "1 2 3 4 5 6", "2", "3"},
     "fault: MatMul(y): extents that must be equal differ"},
    {"input x f32[B] output y i = Shape(x) s = Sub(i, t) y = ConstantOfShape(s) init t i64[1] = 3",
     "B=0..4",
     {"", "4"},
     "f32[1] 0"},
    {"input x f32[B] output y i = Shape(x) s = Sub(i, t) y = ConstantOfShape(s) init t i64[1] = 3",
     "B=0..4",
     {"", "2"},
     "fault: ConstantOfShape(y): an extent is out of its range"},
    {"input x f32[B,2] input a i64[1] input e i64[1] output y f32[p,2] y = Slice(x, a, e)",
     "B=0..3",
     {"1 2 3 4 5 6", "-2", "9e18", "3"},
     "f32[2, 2] 3 4 5 6"},
    {"input x f32[B,2] input a i64[1] input e i64[1] input w i64[1] input s i64[1] "
     "output y y = Slice(x, a, e, w, s)",
     "B=0..3",
     {"1 2 3 4 5 6", "0", "5", "-9e18", "0", "2"},
     "f32[2, 2] 1 2 3 4"},
    {"input x f32[B] input a i64[1] input e i64[1] init w i64[1] = 0 input s i64[1] "
     "output y y = Slice(x, a, e, w, s)",
     "B=0..3",
     {"1 2 3", "9e18", "-9223372036854775808", "-9223372036854775808", "3"},
     "f32[1] 3"},
    {"input x f32[B] input a i64[1] input e i64[1] output y y = Slice(x, a, e)",
     "B=0..3",
     {"", "0", "5", "0"},
     "f32[0] "},
    {"input x f32[B] input a i64[1] init e i64[1] = -4 init w i64[1] = 0 init s i64[1] = -2 "
     "output y y = Slice(x, a, e, w, s)",
     "B=0..3",
     {"", "5", "0"},
     "f32[0] "},
    {"input x f32[B] input a i64[1] init e i64[1] = -9 init w i64[1] = 0 init s i64[1] = -2 "
     "output y y = Slice(x, a, e, w, s)",
     "B=0..3",
     {"1 2", "-5", "2"},
     "f32[1] 1"},
    {"input x f32[B] output y init a i64[1] = -5 init e i64[1] = -9 init w i64[1] = 0 "
     "init s i64[1] = -2 y = Slice(x, a, e, w, s)",
     "B=0..3",
     {"1 2", "2"},
     "f32[1] 1"},
    {"input x f32[B] output y init p i64[2] = 1 2 y = Pad(x, p) {mode=\"reflect\"}",
     "B=0..3",
     {"", "0"},
     "fault: Pad(y): an extent is out of its range"},
    /* two extents below 0 have a product above it */
    {"input x f32[B,D] init p i64[4] = -5 -5 -5 -5 output y y = Pad(x, p)",
     "B=1..20 D=1..20",
     {"7 8 9 10 11 12", "1", "6"},
     "fault: Pad(y): an extent is out of its range"},
    {"input x f32[B,D,2] init p i64[6] = -5 -5 0 -5 -5 0 init w f32[2,3] = 1 2 3 4 5 6 output y "
     "z = Pad(x, p) y = MatMul(z, w)",
     "B=1..20 D=1..20",
     {"7 8", "1", "1"},
     "fault: Pad(z): an extent is out of its range"},
    {"input x f32[B] output y init p i64[2] = 1 2 y = Pad(x, p) {mode=\"edge\"}",
     "B=0..3",
     {"3", "1"},
     "f32[4] 3 3 3 3"},
    {"input x f32[1,1,B] output y init s i64[3] = 1 1 4 y = Resize(x, _, _, s)",
     "B=0..3",
     {"", "0"},
     "fault: Resize(y): an extent is out of its range"},
    {"input x f32[B] output y y = ArgMax(x)",
     "B=0..3",
     {"", "0"},
     "fault: ArgMax(y): an extent is out of its range"},
    {"input x f32[B] input p i64[2] output y f32[q] y = Pad(x, p)",
     "B=1..3 q=0..5",
     {"1 2", "2 1", "2"},
     "f32[5] 0 0 1 2 0"},
    {"input x f32[B] input p i64[2] output y f32[q] y = Pad(x, p) {mode=\"reflect\"}",
     "B=1..3 q=0..5",
     {"1 2 3", "9e18 -9e18", "3"},
     "f32[3] 1 2 3"},
    {"opset 18 input x f32[B] input p i64[2] init f f32[] = 7 input w i64[1] output y f32[q] "
     "y = Pad(x, p, f, w)",
     "B=1..3 q=0..5",
     {"1 2 3", "-1 1", "-1", "3"},
     "f32[3] 2 3 7"},
    {"input x i64[B] input d i64[] init v f32[2] = 0 1 output y f32[B,q] y = OneHot(x, d, v)",
     "B=1..3 q=0..3",
     {"1 -1", "2", "2"},
     "f32[2, 2] 0 1 0 1"},
    {"input x f32[B] input s i64[2] output y output z y, z = Split(x, s)",
     "B=0..4",
     {"1 2 3 4", "1 3", "4"},
     "f32[1] 1; f32[3] 2 3 4"},
    {"input x f32[B] input s i64[2] output y output z y, z = Split(x, s)",
     "B=0..4",
     {"1 2 3 4", "3 9e18", "4"},
     "fault: Split(y): a computed extent is out of its range"},
    {"input x f32[B] input s i64[2] output y output z y, z = Split(x, s)",
     "B=0..4",
     {"1 2 3 4", "-1 5", "4"},
     "fault: Split(y): a computed extent is out of its range"},
    {"input x f32[B] input s i64[2] output y output z y, z = Split(x, s)",
     "B=0..4",
     {"1 2 3 4", "1 2", "4"},
     "fault: Split(y): extents that must be equal differ"},
    {"opset 18 input x f32[B] input s i64[1] output y f32[q] y = CenterCropPad(x, s)",
     "B=1..4 q=0..5",
     {"1 2 3 4", "2", "4"},
     "f32[2] 2 3"},
    /* alike but for how far they go */
    {"opset 11 input x f32[1,1,A,2] input z f32[1,1,B,2] output y output w "
     "v, i = MaxPool(x) {kernel_shape=[2 2] strides=[2 2]} y = MaxUnpool(v, i) {kernel_shape=[2 2] "
     "strides=[2 2]} u, k = MaxPool(z) {kernel_shape=[2 2] strides=[2 2]} w = MaxUnpool(u, k) "
     "{kernel_shape=[2 2] strides=[2 2]}",
     "A=2..4 B=2..4",
     {"1 2 3 4", "5 6 7 8 9 1 2 3", "2", "4"},
     "f32[1, 1, 2, 2] 0 0 0 4; f32[1, 1, 4, 2] 0 0 0 8 9 0 0 0"},
    /* a single row is where the first is, whatever the scale */
    {"opset 13 input x f32[1,1,H] init k f32[3] = 1 1 0.5 output y y = Resize(x, _, k) "
     "{mode=\"nearest\" nearest_mode=\"ceil\" "
     "coordinate_transformation_mode=\"pytorch_half_pixel\"}",
     "H=1..6",
     {"4 5 6", "3"},
     "f32[1, 1, 1] 4"},
    {"input x f32[4] input z f32[B] init a i64[1] = 0 init e i64[1] = 4 output y s = Shape(z) "
     "y = Slice(x, a, e, a, s)",
     "B=1..4",
     {"1 2 3 4", "0 0 0", "3"},
     "f32[2] 1 4"},
    {"input x f32[1,1,H] output y y = AveragePool(x) {kernel_shape=[2] pads=[1 0] strides=[3]}",
     "H=1..2",
     {"4 5", "2"},
     "f32[1, 1, 1] 4"},
    {"opset 18 input x f32[T,3] output y init a i64[1] = 1 s = ReduceSum(x, a) {keepdims=0} "
     "n = Shape(s) init f i64[1] = 5 m = Sub(f, n) init z i64[1] = 0 p = Concat(z, m) {axis=0} "
     "init v f32[] = 9 q = Pad(s, p, v) y = Reshape(q, f)",
     "T=1..5 q.0=0..5",
     {"0 1 2 3 4 5", "2"},
     "f32[5] 3 12 9 9 9"},
    {"input x f32[2,1] input r i64[2] output y y = Expand(x, r)",
     "y.0=0..5 y.1=0..5",
     {"1 2", "3 1"},
     "fault: Expand(y): the shape asked for does not broadcast"},
    {"opset com.microsoft 1 input x f32[T] output y y = com.microsoft:UnfoldTensor(x) {size=3 "
     "step=2}",
     "T=1..6",
     {"1 2 3 4 5", "5"},
     "f32[2, 3] 1 2 3 3 4 5"},
    {"opset com.microsoft 1 input x f32[T] output y y = com.microsoft:UnfoldTensor(x) {size=3 "
     "step=2}",
     "T=1..6",
     {"1 2", "2"},
     "fault: UnfoldTensor(y): an extent is out of its range"},
    /* both branches and repetitions */
    {"input x f32[B] input c bool[] output y f32[q] y = If(c) {"
     "then_branch=graph{ output a a = Relu(x)} else_branch=graph{ output b b = Concat(x, x) "
     "{axis=0}}}",
     "B=1..3",
     {"1 -2", "0", "2"},
     "f32[4] 1 -2 1 -2"},
    {"input x f32[B] input c bool[] output y f32[q] y = If(c) {"
     "then_branch=graph{ output a a = Relu(x)} else_branch=graph{ output b b = Concat(x, x) "
     "{axis=0}}}",
     "B=1..3",
     {"1 -2", "1", "2"},
     "f32[2] 1 0"},
    {"input x f32[2,1] input c bool[] output y y = If(c) {"
     "then_branch=graph{ output a a = Neg(x)} else_branch=graph{ output b b = Transpose(x)}}",
     NULL,
     {"1 2", "0"},
     "f32[1, 2] 1 2"},
    {"input x f32[] input c bool[] output y y = If(c) {"
     "then_branch=graph{ output a init s i64[2] = 1 1 a = Reshape(x, s)} "
     "else_branch=graph{ output b b = Neg(x)}}",
     NULL,
     {"3", "0"},
     "f32[1, 1] -3"},
    /* of an empty branch nothing is read */
    {"input x f32[2] init i i64[1] = 1 init e i64[1] = 1 init z i64[1] = 0 input c bool[] "
     "output y f32[q] y = If(c) {then_branch=graph{ output a a = Slice(x, i, e, z)} "
     "else_branch=graph{ output b b = Neg(x)}}",
     NULL,
     {"1 2", "1"},
     "f32[0] "},
    {"input x f32[2] init i i64[1] = 1 init e i64[1] = 1 init z i64[1] = 0 input c bool[] "
     "output y f32[q] y = If(c) {then_branch=graph{ output a a = Slice(x, i, e, z)} "
     "else_branch=graph{ output b b = Neg(x)}}",
     NULL,
     {"1 2", "0"},
     "f32[2] -1 -2"},
    /* an element or none is no single element */
    {"input x f32[B] input z f32[1,1] input c bool[] output y y = If(c) {"
     "then_branch=graph{ output a a = Neg(x)} else_branch=graph{ output b b = Neg(z)}}",
     "B=0..1",
     {"", "5", "0", "0"},
     "not imported"},
    {"input x f32[B] init t bool[] = 1 init z f32[] = 1 output y output r s = Shape(x) m = "
     "Squeeze(s) "
     "y, r = Loop(m, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output "
     "w "
     "output k d = Identity(c) w = Add(v, v) k = Identity(v)}}",
     "B=0..4",
     {"", "3"},
     "f32[] 8; f32[3] 1 2 4"},
    {"input m i64[] init t bool[] = 1 init z f32[] = 1 output y output r f32[n] "
     "y, r = Loop(m, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output "
     "w "
     "output k d = Identity(c) w = Add(v, v) k = Identity(v)}}",
     "n=0..4",
     {"3"},
     "f32[] 8; f32[3] 1 2 4"},
    {"input m i64[] init t bool[] = 1 init z f32[] = 1 output y output r f32[n] "
     "y, r = Loop(m, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output "
     "w "
     "output k d = Identity(c) w = Add(v, v) k = Identity(v)}}",
     "n=0..4",
     {"9e18"},
     "fault: Loop(y): too many iterations"},
    {"input h f32[] init t bool[] = 1 init z f32[] = 1 output y output r f32[n] "
     "y, r = Loop(_, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output "
     "w "
     "output k d = Less(w, h) w = Add(v, v) k = Identity(v)}}",
     "n=0..6",
     {"5"},
     "f32[] 8; f32[3] 1 2 4"},
    {"input h f32[] init t bool[] = 1 init z f32[] = 1 output y output r f32[n] "
     "y, r = Loop(_, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output "
     "w "
     "output k d = Less(w, h) w = Add(v, v) k = Identity(v)}}",
     "n=0..6",
     {"100"},
     "fault: Loop(y): too many iterations"},
    {"input h f32[] init t bool[] = 1 init z f32[] = 1 output y "
     "y = Loop(_, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output w "
     "d = Identity(c) w = Add(v, v)}}",
     "y.trips=0..6",
     {"5"},
     "fault: Loop(y): too many iterations"},
    {"input h f32[] init t bool[] = 1 init z f32[] = 1 output y "
     "y = Loop(_, t, z) {body=graph{ input i i64[] input c bool[] input v f32[] output d output w "
     "d = Less(w, h) w = Add(v, v)}}",
     "y.trips=0..6",
     {"5"},
     "f32[] 8"},
    /* carried numbers that count say when the loop ends: after 100 iterations ... */
    {"input x f32[] init t bool[] = 1 init o i64[] = 0 init e i64[] = 100 init u i64[] = 1 "
     "output y output k y, k, e2, r = Loop(_, t, x, o, e) {body=graph{ input i i64[] "
     "input c bool[] input v f32[] input a i64[] input b i64[] output d output w output a2 output "
     "b "
     "output v a2 = Add(a, u) d = Less(a2, b) f = Cast(a) {to=1} w = Add(v, f)}}",
     NULL,
     {"0.5"},
     "f32[] 4950.5; i64[] 100"},
    /* ... or as many as an input has rows ... */
    {"input x f32[T] init z f32[] = 0 init o i64[] = 0 init u i64[] = 1 output y output k output r "
     "s = Shape(x) e = Squeeze(s) t = Less(o, e) "
     "y, k, e2, r = Loop(_, t, z, o, e) {body=graph{ input i i64[] input c bool[] input v f32[] "
     "input a i64[] input b i64[] output d output w output a2 output b output w2 "
     "a2 = Add(a, u) p = Cast(a2) {to=1} q = Cast(b) {to=1} d = Less(p, q) g = Gather(x, a) "
     "w = Add(v, g) w2 = Identity(w)}}",
     "T=0..200",
     {"1 2 4", "3"},
     "f32[] 7; i64[] 3; f32[3] 1 3 7"},
    /* sums of what has no elements are not asked for */
    {"input z u8[] input n i8[N] init a u8[2,0,3] = init w u8[3,2] = 1 2 3 4 5 6 output y output m "
     "y = MatMulInteger(a, w, _, z) m = Neg(n)",
     "N=0..2",
     {"7", "1", "1"},
     "i32[2, 0, 2] ; i8[1] -1"},
    /* numbers that are compared as bytes may wrap */
    {"input x f32[T] init z f32[] = 0 init o i64[] = 0 init u i64[] = 1 output y "
     "s = Shape(x) e = Squeeze(s) t = Less(o, e) "
     "y, k, e2 = Loop(_, t, z, o, e) {body=graph{ input i i64[] input c bool[] input v f32[] "
     "input a i64[] input b i64[] output d output w output a2 output b "
     "a2 = Add(a, u) p = Cast(a2) {to=3} q = Cast(b) {to=3} d = Less(p, q) g = Gather(x, a) "
     "w = Add(v, g)}}",
     "T=0..200",
     {"1 2 4", "3"},
     "not imported"},
    /* ... or a run says so before */
    {"input h f32[] init x f32[5] = 1 2 4 8 16 init t bool[] = 1 init z f32[] = 0 init o i64[] = 0 "
     "init e i64[] = 4 init u i64[] = 1 init l i64[1] = -1 init one f32[] = 1 output y "
     "output k y, k, e2 = Loop(_, t, z, o, e) {body=graph{ input i i64[] input c bool[] input v "
     "f32[] "
     "input a i64[] input b i64[] output d output w output a2 output b "
     "f = Cast(a) {to=1} f2 = Add(f, one) a2 = Cast(f2) {to=7} from = Reshape(a, l) "
     "to = Reshape(a2, l) g = Slice(x, from, to) at = Range(a, a2, u) n = Gather(x, at) "
     "w1 = Add(g, n) w2 = Squeeze(w1) w = Add(v, w2) below = Less(w, h) ends = Less(a2, b) "
     "d = And(ends, below)}} ",
     NULL,
     {"12"},
     "f32[] 14; i64[] 3"},
    /* what an iteration adds is not always what the first one adds */
    {"input q f32[] init x i64[9] = 1 1 1 5 1 1 1 1 1 init t bool[] = 1 init z i64[] = 0 "
     "init o i64[] = 0 init e i64[] = 6 init u i64[] = 1 init l i64[1] = -1 output y output k "
     "y, k, p = Loop(_, t, z, o, q) {body=graph{ input i i64[] input c bool[] input v i64[] "
     "input a i64[] input m f32[] output d output w output a2 output m "
     "a2 = Add(a, u) from = Reshape(a, l) to = Reshape(a2, l) g = Slice(x, from, to) "
     "n = Squeeze(g) w = Add(v, n) d = Less(w, e)}}",
     NULL,
     {"1"},
     "i64[] 8; i64[] 4"},
    {"input x f32[T,B] input z f32[B] output y output r y, r = Scan(z, x) {num_scan_inputs=1 "
     "scan_input_directions=[1] scan_output_directions=[1] body=graph{ input s f32[B] input u "
     "f32[B] "
     "output w output k w = Add(s, u) k = Identity(w)}}",
     "T=0..4 B=1..2",
     {"1 2 3 4 5 6", "0 10", "3", "2"},
     "f32[2] 9 22; f32[3, 2] 9 22 8 20 5 16"},
    /* a loop fills a sequence: stacked, one after the other, by position, how many; none */
    {"input x f32[T,2] init t bool[] = 1 init o i64[] = -1 output y output z output k output n "
     "s = Shape(x) {end=1} m = Squeeze(s) e = SequenceEmpty() "
     "q = Loop(m, t, e) {body=graph{ input i i64[] input c bool[] input v seq(f32[2]) output d "
     "output w d = Identity(c) g = Gather(x, i) w = SequenceInsert(v, g)}} "
     "y = ConcatFromSequence(q) {axis=1 new_axis=1} z = ConcatFromSequence(q) {axis=0} "
     "k = SequenceAt(q, o) n = SequenceLength(q)",
     "T=0..4",
     {"1 2 3 4 5 6", "3"},
     "f32[2, 3] 1 3 5 2 4 6; f32[6] 1 2 3 4 5 6; f32[2] 5 6; i64[] 3"},
    {"input x f32[T,2] init t bool[] = 1 output y output n "
     "s = Shape(x) {end=1} m = Squeeze(s) e = SequenceEmpty() "
     "q = Loop(m, t, e) {body=graph{ input i i64[] input c bool[] input v seq(f32[2]) output d "
     "output w d = Identity(c) g = Gather(x, i) w = SequenceInsert(v, g)}} "
     "y = ConcatFromSequence(q) {axis=0 new_axis=1} n = SequenceLength(q)",
     "T=0..4",
     {"", "0"},
     "f32[0, 2] ; i64[] 0"},
    {"input x f32[T,2] init t bool[] = 1 init o i64[] = -1 output k "
     "s = Shape(x) {end=1} m = Squeeze(s) e = SequenceEmpty() "
     "q = Loop(m, t, e) {body=graph{ input i i64[] input c bool[] input v seq(f32[2]) output d "
     "output w d = Identity(c) g = Gather(x, i) w = SequenceInsert(v, g)}} k = SequenceAt(q, o)",
     "T=0..4",
     {"", "0"},
     "fault: SequenceAt(k): an extent is out of its range"},
    /* ... as many as are known can do more */
    {"input x f32[2] init t bool[] = 1 init m i64[] = 70 init o i64[] = 69 output k output n "
     "e = SequenceEmpty() "
     "q = Loop(m, t, e) {body=graph{ input i i64[] input c bool[] input v seq(f32[2]) output d "
     "output w d = Identity(c) f = Cast(i) {to=1} g = Add(x, f) w = SequenceInsert(v, g)}} "
     "z = SequenceErase(q) n = SequenceLength(z) k = SequenceAt(q, o)",
     NULL,
     {"1 2"},
     "f32[2] 70 71; i64[] 69"},
    /* ... beside other states, until a condition, of one item or another, of items of two rows */
    {"input x f32[] init t bool[] = 1 init z f32[] = 1 output y output r output q e = "
     "SequenceEmpty() "
     "y, a, r = Loop(_, t, z, e) {body=graph{ input i i64[] input c bool[] input v f32[] input l "
     "seq(f32[2,1]) output d output w output k output u d = Less(w, x) w = Add(v, v) u = "
     "Identity(v) init n i64[2] = 2 1 p = Expand(w, n) h = Less(z, v) b = If(h) "
     "{then_branch=graph{ output o o = SequenceInsert(l, p)} else_branch=graph{ output o "
     "j = Neg(p) o = SequenceInsert(l, j)}} k = Identity(b)}} q = ConcatFromSequence(a) {axis=1}",
     "r.0=0..6",
     {"5"},
     "f32[] 8; f32[3] 1 2 4; f32[2, 3] -2 4 8 -2 4 8"},
    /* what is carried changes its extents from one iteration to the next */
    {"input x f32[T,2] init t bool[] = 1 output y output r s = Shape(x) {end=1} m = Squeeze(s) "
     "y, r = Loop(m, t, x) {body=graph{ input i i64[] input c bool[] input v f32[n,2] output d "
     "output w output k d = Identity(c) g = Gather(x, i) init a i64[1] = 0 u = Unsqueeze(g, a) "
     "w = Concat(u, v, u) {axis=0} k = ReduceSum(v) {keepdims=0}}}",
     "T=0..3",
     {"1 2 3 4", "2"},
     "f32[6, 2] 3 4 1 2 1 2 3 4 1 2 3 4; f32[2] 10 16"},
    {"input x f32[T] input m i64[] init t bool[] = 1 output y "
     "y = Loop(m, t, x) {body=graph{ input i i64[] input c bool[] input v f32[n] output d "
     "output w d = Identity(c) init z f32[] = 0 e = Greater(v, z) f = Compress(v, e) {axis=0} "
     "init o f32[] = 1 w = Sub(f, o)}}",
     "T=0..5 y.trips=0..9",
     {"1 3 0 2", "2", "4"},
     "f32[2] 1 0"},
    {"input x f32[T] input m i64[] init t bool[] = 1 output y "
     "y = Loop(m, t, x) {body=graph{ input i i64[] input c bool[] input v f32[n] output d "
     "output w d = Identity(c) init z f32[] = 0 e = Greater(v, z) f = Compress(v, e) {axis=0} "
     "init o f32[] = 1 w = Sub(f, o)}}",
     "T=0..5 y.trips=0..3",
     {"1 3 0 2", "4", "4"},
     "fault: Loop(y): too many iterations"},
    {"input x f32[T] input h f32[] init t bool[] = 1 output y output z init m i64[] = 99 "
     "y, z = Loop(m, t, x, x) {body=graph{ input i i64[] input c bool[] input v f32[n] "
     "input u f32[p] output d output w output k q = ReduceSum(v) {keepdims=0} d = Less(q, h) "
     "init o f32[1] = 7 w = Concat(v, o) {axis=0} k = Concat(o, u, o, o) {axis=0}}}",
     "T=0..5",
     {"1 3", "15", "2"},
     "f32[5] 1 3 7 7 7; f32[11] 7 7 7 1 3 7 7 7 7 7 7"},
    {"input x f32[T] input m i64[] init t bool[] = 1 output y "
     "y = Loop(m, t, x) {body=graph{ input i i64[] input c bool[] input v f32[n] output d "
     "output w d = Identity(c) init o i64[1] = 1 init b i64[1] = 9 w = Slice(v, o, b)}}",
     "T=0..5 y.trips=0..9",
     {"1 3 0 2", "3", "4"},
     "f32[1] 2"},
    {"input x f32[T] init t bool[] = 1 init e f32[0] = output y s = Shape(x) {end=1} "
     "m = Squeeze(s) y = Loop(m, t, e) {body=graph{ input i i64[] input c bool[] input v f32[n] "
     "output d output w d = Identity(c) g = Gather(x, i) init h f32[] = 2 f = Greater(g, h) "
     "w = If(f) {then_branch=graph{ output o init a i64[1] = 0 u = Unsqueeze(g, a) "
     "o = Concat(v, u) {axis=0}} else_branch=graph{ output o o = Identity(v)}}}}",
     "T=0..5",
     {"1 3 2 4", "4"},
     "f32[2] 3 4"},
    {"input x f32[T] init t bool[] = 1 output y s = Shape(x) {end=1} m = Squeeze(s) "
     "y = Loop(m, t, x) {body=graph{ input i i64[] input c bool[] input v f32[n] output d "
     "output w d = Identity(c) init z i64[1] = 0 w = Slice(v, z, z)}}",
     "T=0..5",
     {"1 3 2", "3"},
     "f32[0] "},
    {"input x f32[T] input z f32[1] init t bool[] = 1 output y init m i64[] = 99 "
     "y = Loop(m, t, z) {body=graph{ input i i64[] input c bool[] input v f32[n] output d "
     "output w d = Identity(c) u = Concat(v, x) {axis=0} init a i64[1] = -3 init e i64[1] = 99 "
     "w = Slice(u, a, e)}}",
     "T=1..2",
     {"1 3", "5", "2"},
     "f32[3] 3 1 3"},
    {"input x f32[T] input z f32[U] output y y = Scan(x, z) {num_scan_inputs=2 body=graph{ "
     "input a f32[] input b f32[] output k k = Add(a, b)}}",
     "T=1..3 U=1..3",
     {"1 2", "1 2 3", "2", "3"},
     "fault: Scan(y): extents that must be equal differ"},
    /* what the body of a loop finds stays inside of it */
    {"input x f32[T,3] init t bool[] = 1 output y s = Shape(x) {end=1} m = Squeeze(s) "
     "y = Loop(m, t) {body=graph{ input i i64[] input c bool[] output d output k d = Identity(c) "
     "r = Gather(x, i) p = Relu(r) z = NonZero(p) w = Transpose(z) v = GatherND(r, w) "
     "k = ReduceSum(v) {keepdims=0}}}",
     "T=0..3",
     {"1 2 -3 0 4 -5", "2"},
     "f32[2] 3 4"},
    /* faults inside of loops and branches count where those are run */
    {"input x f32[T,3] init t bool[] = 1 init v f32[3] = 1 2 4 output y s = Shape(x) {end=1} "
     "m = Squeeze(s) y = Loop(m, t) {body=graph{ input i i64[] input c bool[] output d output k "
     "d = Identity(c) r = Gather(x, i) p = Relu(r) z = NonZero(p) "
     "k = ReduceSum(z) {keepdims=0}}}",
     "T=0..3 z.1=0..2",
     {"1 2 -3 0 4 -5", "2"},
     "i64[2] 1 1"},
    {"input x f32[T,3] init t bool[] = 1 output y s = Shape(x) {end=1} "
     "m = Squeeze(s) y = Loop(m, t) {body=graph{ input i i64[] input c bool[] output d output k "
     "d = Identity(c) r = Gather(x, i) p = Relu(r) z = NonZero(p) "
     "k = ReduceSum(z) {keepdims=0}}}",
     "T=0..3 z.1=0..2",
     {"1 2 3 0 4 -5", "2"},
     "fault: NonZero(z): a computed extent is out of its range"},
    {"input x f32[T,3] init t bool[] = 1 init two i64[] = 1 output y s = Shape(x) {end=1} "
     "m = Squeeze(s) y = Loop(m, t) {body=graph{ input i i64[] input c bool[] output d output k "
     "d = Less(i, two) r = Gather(x, i) p = Relu(r) z = NonZero(p) "
     "k = ReduceSum(z) {keepdims=0}}}",
     "T=0..3 z.1=0..2",
     {"1 2 0 0 4 -5 1 1 1", "3"},
     "i64[2] 1 1"},
    {"input x f32[B] input z f32[C] input c bool[] output y f32[q] y = If(c) {"
     "then_branch=graph{ output a a = Relu(x)} else_branch=graph{ output b b = Add(x, z)}}",
     "B=1..3 C=1..3",
     {"1 -2", "1 2 3", "1", "2", "3"},
     "f32[2] 1 0"},
    {"input x f32[B] input z f32[C] input c bool[] output y f32[q] y = If(c) {"
     "then_branch=graph{ output a a = Relu(x)} else_branch=graph{ output b b = Add(x, z)}}",
     "B=1..3 C=1..3",
     {"1 -2", "1 2 3", "0", "2", "3"},
     "fault: Add(b): extents do not broadcast"},
    /* strings */
    {"input s str[B] input i i64[C] output y y = Gather(s, i)",
     "B=1..3 C=0..2",
     {"\"a\" \"bc\"", "1 -2", "2", "2"},
     "str[2] \"bc\" \"a\""},
    {"input s str[B] input t str[C] output y str[q] y = StringConcat(s, t)",
     "B=1..3 C=1..3",
     {"\"a\" \"bc\"", "\"x\"", "2", "1"},
     "str[2] \"ax\" \"bcx\""},
    {"opset 20 input s str[B] output y str[B,q] output c y, c = StringSplit(s) {delimiter=\"-\"}",
     "B=1..3 q=0..3",
     {"\"a\" \"b-c\"", "2"},
     "str[2, 2] \"a\" \"\" \"b\" \"c\"; i64[2] 1 2"},
    {"opset 20 opset com.microsoft 1 input s str[B] output y str[B,q] y = "
     "com.microsoft:Tokenizer(s) "
     "{mark=1 mincharnum=1 pad_value=\"-\" tokenexp=\"b+\"}",
     "B=1..3",
     {"\"a\" \"abcbb\"", "2"},
     "str[2, 4] \"\2\" \"\3\" \"-\" \"-\" \"\2\" \"b\" \"bb\" \"\3\""},
    {"opset 20 opset com.microsoft 1 input s str[B] output y str[B,q] y = "
     "com.microsoft:Tokenizer(s) "
     "{mark=0 mincharnum=1 pad_value=\"\" separators=[\" \"]}",
     "B=1..3 q=0..2",
     {"\"a\" \"a b c\"", "2"},
     "fault: Tokenizer(y): a computed extent is out of its range"},
    {"opset 20 opset com.microsoft 1 input s str[B] output y t = com.microsoft:Tokenizer(s) "
     "{mark=0 mincharnum=1 pad_value=\"#\" tokenexp=\".\"} "
     "y = TfIdfVectorizer(t) {mode=\"TF\" min_gram_length=1 max_gram_length=2 max_skip_count=0 "
     "ngram_counts=[0 2] ngram_indexes=[0 1 2] pool_strings=[\"a\" \"b\" \"b\" \"a\"]}",
     "B=1..3",
     {"\"a\" \"bab\"", "2"},
     "f32[2, 3] 1 0 0 1 2 1"},
    {"input s str[B] output y str[q] y = StringNormalizer(s) {stopwords=[\"a\"]}",
     "B=1..3",
     {"\"a\" \"bc\"", "2"},
     "str[1] \"bc\""},
    {"input s str[B] output y str[q] y = StringNormalizer(s) {stopwords=[\"a\"]}",
     "B=1..3",
     {"\"a\" \"a\"", "2"},
     "str[1] \"\""},
    {"opset 17 opset com.microsoft 1 input s str[B] output y u32[B] y = "
     "com.microsoft:MurmurHash3(s)",
     "B=1..3",
     {"\"\" \"abcd\"", "2"},
     "u32[2] 0 1139631978"},
    {"input x f32[N] output y y = ReduceMax(x) {keepdims=0}",
     "N=1..24",
     {"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "20"},
     "f32[] 20"},
    {"input s str[B] input c bool[B] output y str[q] t = Concat(s, s) {axis=0} y = Compress(t, c)",
     "B=1..3",
     {"\"a\" \"bc\"", "0 1", "2"},
     "str[1] \"bc\""},
};

/* --- one row on one target -------------------------------------------------------------------- */

static struct {
    Bench *b;
    const Row *row;
    const char *result;
} now;

/* An input that ends where memory does: of inputs no more is read than a run gives. */
typedef struct Fenced {
    unsigned char *pages;
    size_t bytes, page;
} Fenced;

static const void *fence(Fenced *f, Bench *b, const Value *v, const Row *row, int i) {
    ModelText m = {.b = b, .p = row->inputs[i]};
    size_t count = 0, size = v->text ? (size_t)v->shape[v->rank - 1] : dt_store(v->dt);
    for (skip_blanks(&m); *m.p; skip_blanks(&m), count++) word(&m);
    /* some rows leave out what nothing reads, and faults are of extents that are not given */
    if (!dims_vary(v->rank, v->dims) || count == 0 || !strncmp(row->result, "fault: ", 7))
        count = value_bytes(v) / size;
    f->page = (size_t)sysconf(_SC_PAGESIZE);
    f->bytes = (count * size + f->page - 1) / f->page * f->page;
    f->pages =
        mmap(NULL, f->bytes + f->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->pages != MAP_FAILED);
    assert_int_equal(mprotect(f->pages + f->bytes, f->page, PROT_NONE), 0);
    return memcpy(f->pages + f->bytes - count * size, elements(b, v, row->inputs[i]), count * size);
}

static int run_row(Session *s) {
    s->target = target_find(s->o->target);
    Graph *g = session_graph(s);
    if (!g) now.result = "not imported";
    if (!g) return 0;
    const void *in[8];
    void *out[16];
    Fenced fenced[8];
    const int n_in = g->inputs.n;
    for (int i = 0; i < n_in; i++) in[i] = fence(&fenced[i], now.b, g->inputs.items[i], now.row, i);
    for (int i = 0; i < g->outputs.n; i++) {
        size_t bytes = value_bytes(g->outputs.items[i]);
        out[i] = memset(arena_alloc(&now.b->arena, bytes + 16), 0xa5, bytes);
    }
    Graph before = *g; /* the passes change it */
    Program *p = session_lower(s, g);
    const char *path = arena_printf(&s->arena, "%s/m.so", now.b->folder);
    LoadedModel m = {0};
    if (p && write_program(s, p, path) && model_load(s, &m, path, NULL)) {
        int status = m.model->run(m.state, in, out, m.arena);
        if (status == MLCC_OK || status == MLCC_E_EXTENT)
            now.result = outputs_text(now.b, &before, out);
        bool fault = !strncmp(now.result, "fault: ", 7);
        if (fault != (status == MLCC_E_EXTENT)) now.result = "another status";
    }
    model_unload(&m);
    for (int i = 0; i < n_in; i++) munmap(fenced[i].pages, fenced[i].bytes + fenced[i].page);
    return 0;
}

static int count_inputs(const Row *row) {
    int n = 0;
    while (n < 6 && row->inputs[n]) n++;
    return n;
}

static void check_row(Bench *b, const Row *row, const char *target, const char *march) {
    const char *path = arena_printf(&b->arena, "%s/m.onnx", b->folder);
    const char *dims[8];
    ModelText m = {.b = b, .p = row->dims ? row->dims : ""};
    Options o = {.model = path, .target = target, .march = march, .optimize = "1"};
    o.runtime_cache = b->folder;
    o.dims.items = dims;
    for (skip_blanks(&m); *m.p; skip_blanks(&m)) {
        const char *name = word(&m);
        want(&m, "=");
        dims[o.dims.n++] = arena_printf(&b->arena, "%s=%s", name, word(&m));
    }
    Text bytes = model_bytes(b, row->text);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(text_get(&bytes), 1, bytes.length, f);
    fclose(f);
    now.b = b;
    now.row = row;
    now.result = "no result";
    with_session(&o, run_row);
    if (strcmp(now.result, row->result) != 0)
        fail_msg("%s on %s: %s, not %s", row->text, target, now.result, row->result);
}

static void test_interpreter(void **state) {
    for (size_t i = 0; i < N(rows); i++) {
        const char *result =
            run_text(*state, rows[i].text, rows[i].dims, count_inputs(&rows[i]), rows[i].inputs);
        if (strcmp(result, rows[i].result) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, result, rows[i].result);
    }
}

static void test_c(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "c", NULL);
}

static void test_vectors(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "c", "native");
}

static void test_cuda(void **state) {
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "cuda", "cpu");
}

static void test_vulkan(void **state) {
    const char *skip_it = getenv("SKIP_VULKAN");
    if (skip_it && strcmp(skip_it, "0") != 0) skip();
    for (size_t i = 0; i < N(rows); i++) check_row(*state, &rows[i], "vulkan", NULL);
}

/* Every kernel that goes over rows that NonZero has found ends with the last of them, or asks first
 * whether there is one: the symbol is a parameter, x<N> : i32[1], that a loop's end or a condition
 * loads. */
static void test_work_ends(void **state) {
    Bench *b = *state;
    static const char *const arch[] = {"generic", "x86-64-v4"};
    for (size_t i = 0; i < N(arch); i++) {
        Graph *g = import_text(
            b,
            "opset 17 input m bool[100] input x f32[100,64] init z i64[1] = 0 n = NonZero(m) "
            "input w f32[64,32] i = Squeeze(n, z) g = Gather(x, i) output y y = MatMul(g, w)",
            NULL);
        Target target = target_for_arch(target_find("c"), arch[i]);
        PassOptions o = {.target = &target};
        assert_non_null(g);
        Program *p = run_passes(g, &o);
        int ending = 0;
        for (int k = 0; k < p->kernels.n; k++) {
            Text text = text_new(&b->arena);
            text_kernel(&text, p->kernels.items[k]);
            const char *said = text_get(&text);
            bool of_rows = strstr(said, "y : f32"), ends = false;
            const char *symbol = strstr(said, " : i32[1] within"), *loaded = "";
            if (symbol) loaded = arena_printf(&b->arena, "%.2s[0]", symbol - 2);
            for (const char *at = strstr(said, loaded); symbol && at && !ends;
                 at = strstr(at + 1, loaded))
                ends = at[strcspn(at, "\n") - 1] == '{';
            if (of_rows && !ends) fail_msg("it goes over all rows: %s", said);
            ending += of_rows;
        }
        assert_true(ending > 0); /* the gather may be part of the product */
    }
}

/* What threads share of products whose rows vary are the iterations that a run does, also where
 * another loop, of heads, is outside of that of the rows. */
static void test_shared_work(void **state) {
    Bench *b = *state;
    Graph *g = import_text(
        b, "opset 17 input x f32[6,S,64] input w f32[6,64,32] output y y = MatMul(x, w)",
        "S=1..512");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int products = 0;
    for (int i = 0; i < p->kernels.n; i++) {
        const Kernel *k = p->kernels.items[i];
        if (k->buffers.n == k->n_params) continue; /* without sums */
        for (const Stmt *loop = k->body; loop; loop = loop->next) {
            assert_int_equal(loop->role, ROLE_parallel);
            assert_false(ex_is_const(loop->extent));
            assert_true(k->vars.items[loop->var].extent > 6 * 64);
            assert_int_equal(shared_unit(loop), 1);
            products++; /* of many rows, and of few */
        }
    }
    assert_int_equal(products, 2);
}

/* Strips of a convolution around a batch that varies: the loop does those of the run, eight or more
 * of an image, so that threads have something to do if there is one. */
static void test_strips(void **state) {
    Bench *b = *state;
    Graph *g = import_text(
        b,
        "opset 17 input x f32[B,32,112,112] input e f32[96,32,1,1] input d f32[96,1,3,3] "
        "input p f32[24,96,1,1] output y v = Conv(x, e) u = Relu(v) w = Conv(u, d) {group=96 "
        "pads=[1 1 1 1]} y = Conv(w, p)",
        "B=1..4");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int loops = 0;
    for (int i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.items[i];
        if (step->kind != STEP_loop) continue;
        assert_non_null(step->args);
        assert_ptr_equal(step->args[0], p->graph->symbols.items[0]);
        assert_true(step->each >= 8 && step->each * 4 == step->trips);
        loops++;
    }
    assert_int_equal(loops, 1);
    Text once = text_new(&b->arena), again = text_new(&b->arena);
    text_program(&once, p, (TextOptions){0});
    assert_non_null(strstr(text_get(&once), " of %4 input 4 +0 bytes 4\n"));
    Program *back = parse_program(&b->arena, p->x, &b->diag, text_get(&once), once.length);
    assert_non_null(back);
    text_program(&again, back, (TextOptions){0});
    assert_string_equal(text_get(&once), text_get(&again));
}

/* The program of a model whose weights are numbers from 1 to 7, for a processor with vectors. */
static Program *vectors_of(Bench *b, const char *input, const char *weights, int count,
                           const char *rest, const char *dims) {
    Text model = text_new(&b->arena);
    text_addf(&model, "opset 17 %s init w f32[%s] =", input, weights);
    for (int i = 0; i < count; i++) text_addf(&model, " %d", i % 7 + 1);
    text_addf(&model, " %s", rest);
    Graph *g = import_text(b, text_get(&model), dims);
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    return run_passes(g, &o);
}

/* No tile has all rows of a batch of which a run may have one: that has tiles of its own. */
static void test_single_rows(void **state) {
    Program *p = vectors_of(*state, "input x f32[B,64]", "64,96", 64 * 96,
                            "output y y = MatMul(x, w)", "B=1..6");
    int singles = 0;
    for (int i = 0; i < p->kernels.n; i++)
        singles += strstr(p->kernels.items[i]->schedule, "single i0i 2 streams ") != NULL;
    assert_int_equal(singles, 1);
}

/* Images of any size are filtered by tiles, those of all rows side by side, and made where their
 * rim is. */
static void test_images(void **state) {
    Program *p = vectors_of(*state, "input x f32[1,32,H,W]", "32,32,3,3", 32 * 32 * 9,
                            "output y u = Relu(x) v = Conv(u, w) {pads=[1 1 1 1]} "
                            "a = Conv(v, w) {pads=[1 1 1 1]} y = Relu(a)",
                            "H=1..64 W=1..64");
    int products = 0, inside = 0;
    for (const Op *op = p->graph->first; op; op = op->next) {
        const Value *v = op->n_out ? op->out[0] : NULL;
        if (!v) continue;
        inside += v->inside && dims_vary(v->rank, v->dims);
        if (op->kind != OP_reduce || op->n_red != 1 || op->red[0] != 32) continue;
        assert_true(v->rank == 5 && v->shape[0] == 6 && v->shape[3] == 16 * 16);
        products++;
    }
    assert_int_equal(products, 2);
    assert_int_equal(inside, 1);

    /* the rim is cleared when all threads have made what lies in it, of which there may be more
     * than a run asks for */
    const EmitOptions all = {.prefix = "m", .vector_bytes = 32, .share_all = true};
    const Program *shared = share_loops(p, &all);
    const StepShare *share = share_steps(shared, &all);
    int rims = 0;
    for (int i = 0; i < shared->steps.n; i++) {
        const Step *step = &shared->steps.items[i];
        const Value *made =
            step->kind == STEP_launch ? step->args[step->kernel->n_params - 1] : NULL;
        const Step *before = i > 0 && made ? step - 1 : NULL;
        const Value *part = before && before->kind == STEP_launch
                                ? before->args[before->kernel->n_params - 1]
                                : NULL;
        if (!part || part->inside != made) continue;
        assert_true(share[i].barrier);
        rims++;
    }
    assert_int_equal(rims, 1);
}

/* What is known of reductions over extents that are computed: a softmax divides its product. */
static void test_computed_extents(void **state) {
    Program *p = vectors_of(*state, "input x f32[1,8,S] input q f32[4,8]", "8,8,3", 8 * 8 * 3,
                            "output y a = Conv(x, w) {strides=[2] pads=[1 1]} "
                            "k = Conv(a, w) {strides=[2] pads=[1 1]} s = MatMul(q, k) "
                            "e = Softmax(s) {axis=2} t = Transpose(k) {perm=[0 2 1]} "
                            "y = MatMul(e, t)",
                            "S=1..300");
    Text text = text_new(&((Bench *)*state)->arena);
    text_program(&text, p, (TextOptions){0});
    assert_non_null(strstr(text_get(&text), "exp_low("));
}

/* C computes what extents come to once, ahead of all loops. */
static void test_extents_first(void **state) {
    Bench *b = *state;
    Program *p = vectors_of(b, "input x f32[1,16,H,W]", "16,16,3,3", 16 * 16 * 9,
                            "output y a = Conv(x, w) {strides=[2 2] pads=[1 1 1 1]} "
                            "y = Conv(a, w) {strides=[2 2] pads=[1 1 1 1]}",
                            "H=1..64 W=1..64");
    const EmitOptions plain = {.prefix = "m", .vector_bytes = 32};
    Text text = text_new(&b->arena);
    Text header = text_new(&b->arena);
    emit_c(p, &plain, &text, &header);
    bool inside = false;
    int first = 0, later = 0; /* lines that read an extent */
    for (const char *line = text_get(&text); line && *line; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n'), *load = strstr(line, "[0] + ");
        if (!strncmp(line, "\n}", 2)) inside = false;
        if (!strncmp(line, "\n    for (", 10)) inside = true;
        if (load && end && load < end) (inside ? later++ : first++);
    }
    assert_true(first > 0);
    assert_int_equal(later, 0);
}

/* A tile has no rows of several images, of which there may be one: those of an image are enough, or
 * go on in the next image. */
static void test_tiles(void **state) {
    Bench *b = *state;
    static const struct {
        const char *name, *shape;
        int elements;
    } weights[] = {
        {"e", "96,32,1,1", 96 * 32}, {"d", "96,1,3,3", 96 * 9}, {"p", "24,96,1,1", 2304}};
    Text model = text_new(&b->arena);
    text_add(&model, "opset 17 input x f32[B,32,7,7] ");
    for (size_t i = 0; i < N(weights); i++) {
        text_addf(&model, "init %s f32[%s] =", weights[i].name, weights[i].shape);
        for (int k = 0; k < weights[i].elements; k++) text_addf(&model, " %d", k % 7 + 1);
        text_add(&model, " ");
    }
    text_add(&model, "output y v = Conv(x, e) w = Conv(v, d) {group=96 pads=[1 1 1 1]} "
                     "y = Conv(w, p)");
    Graph *g = import_text(b, text_get(&model), "B=1..8");
    Target target = target_for_arch(target_find("c"), "x86-64-v3");
    PassOptions o = {.target = &target};
    assert_non_null(g);
    Program *p = run_passes(g, &o);
    int across = 0;
    for (int i = 0; i < p->kernels.n; i++) {
        const char *steps = p->kernels.items[i]->schedule;
        assert_null(strstr(steps, "split i0 "));
        assert_null(strstr(steps, "slide i0 "));
        across += strstr(steps, "split i0i1i2 ") || strstr(steps, "slide i0i1i2 ");
    }
    assert_true(across > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tiles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_single_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_computed_extents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_extents_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shared_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_interpreter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_c, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_vectors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cuda, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_vulkan, set_up, tear_down)};
    return cmocka_run_group_tests_name("sizes that a run finds", tests, NULL, NULL);
}
