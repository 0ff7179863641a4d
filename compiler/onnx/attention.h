/* Scaled dot product attention and rotary embedding as core operators, for ai.onnx and
 * com.microsoft.
 *
 * score[b, h, i, j] = cap(scale * sum over d of q[b, h, i, d] * k[b, h / group, j, d]) + bias
 * y[b, h, i, d]     = sum over j of softmax(score)[b, h, i, j] * v[b, h / group, j, d]
 */
#ifndef COMPILER_ONNX_ATTENTION_H
#define COMPILER_ONNX_ATTENTION_H

#include "compiler/onnx/import.h"

/* A tensor of heads: [batch, heads, length, size], or with heads behind the length. The extents may
 * vary. */
typedef struct Heads {
    Value *v;    /* rank 4 */
    bool packed; /* [batch, length, heads, size] */
    int64_t batch, heads, length, size;
} Heads;

/* v as heads: rank 4 as it is, or rank 3, [batch, length, heads * size], taken apart. False after a
 * report; `what` names the tensor in it. */
bool heads_from(Node *n, Value *v, int64_t heads, const char *what, Heads *out);
/* Element (b, h, at, d). */
const Expr *heads_load(Builder *builder, const Heads *heads, const Expr *b, const Expr *h,
                       const Expr *at, const Expr *d);
/* [batch, heads, length, size] as a value of its own. */
Value *heads_plain(Node *n, const Heads *heads);
/* `past` (rank 4, heads before length) and `now` one after the other; *now becomes both. */
bool heads_append(Node *n, Value *past, Heads *now, const char *what);

typedef struct Attention {
    Heads q, k, v;
    bool by_size;          /* scaled by 1 / sqrt(size of a query) instead of `scale` */
    double scale, softcap; /* softcap 0: none */
    bool causal;           /* j > i + offset is masked out */
    int64_t offset;        /* (may vary) position of query 0 among the keys ... */
    Value *offsets; /* ... or, computed at run time, one number for each of the batch (i64) */
    int64_t window; /* > 0: only the last so many keys up to the query's position */
    Value *lengths; /* i64[batch]: keys from there on are masked out; NULL: none */
    Value *mask;    /* broadcasts to [batch, heads, queries, keys], the last dimension may be
                       shorter (the rest is masked out): bool keeps, floats are added */
    double masked;  /* what a bool mask adds where it does not keep */
    Value *bias;    /* added; broadcasts to the same shape; NULL: none */
} Attention;

typedef enum ScoreStage { SCORE_product, SCORE_capped, SCORE_biased } ScoreStage;

/* 1 / sqrt(size) */
const Expr *attention_scale(Exprs *x, DType work, int64_t size);
/* Checks that the parts fit each other; reports and gives false if not. */
bool attention_check(Node *n, const Attention *a);
/* [batch, heads, queries, keys] in the type that q's is computed in (or in f64). */
Value *attention_scores(Node *n, const Attention *a, ScoreStage stage);
/* `probs` times v, as [batch, queries, heads * size] if packed, else [batch, heads, queries, size].
 */
Value *attention_result(Node *n, const Attention *a, Value *probs, bool packed, DType dt);

typedef struct Rotary {
    Value *cos, *sin; /* [positions, size / 2], or [batch, length, size / 2] without positions */
    Value *ids;       /* positions: integers [batch, length], or one number that position 0 has */
    Value *starts;    /* instead: i64[batch], the position of element 0 */
    bool interleaved;
    int64_t size; /* of each head, the first so many elements are turned */
} Rotary;

/* Heads turned by their positions, laid out as they were given (rank 4 each). */
Value *rotary_apply(Node *n, const Heads *heads, const Rotary *r);
/* Checks the caches against the heads; sets r->size where it is 0. */
bool rotary_check(Node *n, const Heads *heads, Rotary *r);
/* Both, for the heads of v (rank 3 or 4), in its shape. NULL after a report. */
Value *rotary_result(Node *n, const Value *v, const Heads *heads, Rotary *r);

#endif
