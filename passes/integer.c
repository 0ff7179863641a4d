/* integer: sums of decoded integers are computed in integers.
 *
 * A quantised tensor reaches a product as (q - zero) * scale, q of 8 bits. Movement and padding are
 * first computed on q itself (a rim of zeros is one of zero points). Then, where neither scale nor
 * zero point depends on the coordinates that are summed over,
 *
 *   sum (qa - za) sa (qb - zb) sb  =  sa sb (sum qa qb - za sum qb - zb sum qa + n za zb)
 *
 * so that the sum is one of products of bytes, and the rest is an epilogue: of constant weights all
 * of it is folded. Where the target multiplies bytes by fours, rows are brought to unsigned (or, if
 * it wants them so, to signed) and columns to signed ones. A sum of few products, without rows that
 * share columns, is computed in floats that hold it exactly, if the target has vectors of them.
 *
 * The greatest of decoded bytes is found among the bytes. What is encoded as it was before it was
 * decoded stays as it is. Weights alone may be quantised: then the scale is taken out of the sum,
 * and the bytes are decoded where they are read. What QuantizeLinear divides by is multiplied with
 * its reciprocal behind such a sum, of which the last bit is open anyway.
 */
#include "passes/inline.h"
#include "passes/passes.h"
#include "passes/relieve.h"
#include "passes/strassen.h"

#include <string.h>

#define MOST_PRODUCTS 33025     /* of bytes, whose sum an i32 holds */
#define EXACT_FLOAT   (1 << 24) /* integers up to this one are floats */
#define MOST_GROWTH   4         /* of a constant that nobody reads as bytes */
#define ROWS_OF_WORDS 4         /* that are worth widening */
#define MANY_RESULTS  64        /* that read a weight each, which is decoded beforehand */

/* (q - zero) * scale, or 0 where `inside` does not hold. */
typedef struct Decoded {
    const Expr *q;      /* a load of a byte */
    const Expr *zero;   /* i32; NULL: 0 */
    const Expr *scale;  /* f32; NULL: 1 */
    const Expr *inside; /* NULL: everywhere */
} Decoded;

/* --- reading ---------------------------------------------------------------------------------- */

static const Expr *byte_load(const Expr *e) {
    if (e->op != EX_cast || e->dt != DT_i32) return NULL;
    return e->arg[0]->op == EX_load && dt_is_byte((DType)e->arg[0]->dt) ? e->arg[0] : NULL;
}

static bool read_integer(Exprs *x, const Expr *e, Decoded *d) {
    if ((d->q = byte_load(e))) return true;
    if (e->op != EX_sub && e->op != EX_add) return false;
    for (int i = 0; i < 1 + (e->op == EX_add); i++) {
        d->q = byte_load(e->arg[i]);
        d->zero = e->arg[1 - i];
        if (d->q && e->op == EX_sub) return true;
        if (d->q && ex_is_const(d->zero)) {
            d->zero = ex_int(x, DT_i32, -d->zero->k.i);
            return true;
        }
    }
    return false;
}

static bool read_decoded(Exprs *x, const Expr *e, Decoded *d) {
    *d = (Decoded){NULL};
    while (e->op == EX_select && ex_is_zero(e->arg[2])) {
        d->inside = d->inside ? ex_and(x, d->inside, e->arg[0]) : e->arg[0];
        e = e->arg[1];
    }
    if (e->dt == DT_i32) return read_integer(x, e, d);
    if (e->dt != DT_f32) return false;
    for (int i = 0; e->op == EX_mul && i < 2; i++) {
        const Expr *f = e->arg[i];
        if (f->op != EX_cast || f->arg[0]->dt != DT_i32) continue;
        d->scale = e->arg[1 - i];
        if (read_integer(x, f->arg[0], d)) return true;
    }
    d->scale = NULL;
    return e->op == EX_cast && e->arg[0]->dt == DT_i32 && read_integer(x, e->arg[0], d);
}

static const Expr *decode(Exprs *x, const Decoded *d, DType dt) {
    const Expr *e = ex_cast(x, DT_i32, d->q);
    if (d->zero) e = ex_sub(x, e, d->zero);
    e = ex_cast(x, dt, e);
    return d->scale ? ex_mul(x, e, d->scale) : e;
}

/* The map behind a value or a reshape of it, if what it makes is decoded; NULL if it is not. */
static Op *decoding(Graph *g, Value *v, Decoded *d) {
    Op *m = through_reshape(v)->def;
    return m->kind == OP_map && read_decoded(g->x, m->body, d) ? m : NULL;
}

/* --- movement and padding come before decoding ------------------------------------------------ */

/* The input that a map moves, with zeros elsewhere; -1: it does something else. */
static int moved_input(const Expr *e) {
    while (e->op == EX_select && ex_is_zero(e->arg[2])) e = e->arg[1];
    return e->op == EX_load ? (int)e->k.i : -1;
}

/* A map that moves what is decoded decodes what is moved. */
static void sink_into(Graph *g, Op *m) {
    Decoded d;
    int64_t work = 0;
    const int moved = moved_input(m->body);
    if (moved < 0 || !decoding(g, m->in[moved], &d)) return;
    Op old = *m;
    if (!op_inline(g, m, moved, MAX_RANK, &work) || !read_decoded(g->x, m->body, &d)) *m = old;
}

/* Is `e` what a decoded tensor is encoded as, with the scale and zero point that it had? */
static bool restores(const Expr *e, const Decoded *d) {
    DType dt = (DType)d->q->dt;
    if (e->op != EX_cast || (DType)e->dt != dt || !d->scale || !ex_is_const(d->scale)) return false;
    if (d->inside || (d->zero && !ex_is_const(d->zero))) return false;
    int64_t zero = d->zero ? d->zero->k.i : 0;
    e = e->arg[0];
    if (zero) {
        if (e->op != EX_add || !ex_is_int(e->arg[1], zero)) return false;
        e = e->arg[0];
    }
    if (e->op != EX_cast || e->arg[0]->op != EX_round) return false;
    int low = dt == DT_i8 ? -128 : 0;
    e = e->arg[0]->arg[0];
    for (int i = 0; i < 2; i++, e = e->arg[0]) {
        double bound = (double)(i ? low : low + 255) - (double)zero;
        if (e->op != (i ? EX_max : EX_min) || !ex_is_const(e->arg[1]) || e->arg[1]->k.f != bound)
            return false;
    }
    return e->op == EX_div && ex_is_const(e->arg[1]) && e->arg[1]->k.f == d->scale->k.f;
}

static const Expr *encoded_value(const Expr *e) {
    while (e->op == EX_cast || e->op == EX_round || e->op == EX_min || e->op == EX_max ||
           e->op == EX_add)
        e = e->arg[0];
    return e->op == EX_div ? e->arg[0] : e;
}

/* A map that encodes what was decoded with the same scale and zero point moves bytes. */
static void skip_coding(Graph *g, Op *m) {
    Decoded d;
    int64_t work = 0;
    const Expr *encoded = encoded_value(m->body);
    if (m->body->op != EX_cast || encoded->op != EX_load || !decoding(g, m->in[encoded->k.i], &d))
        return;
    Op old = *m;
    if (op_inline(g, m, (int)encoded->k.i, MAX_RANK, &work) &&
        read_decoded(g->x, encoded_value(m->body), &d) && restores(m->body, &d)) {
        m->body = d.q;
        graph_drop_inputs(g, m);
    } else {
        *m = old;
    }
}

/* A new map of m's inputs before m, of m's shape. */
static Value *map_before(Graph *g, Op *m, DType dt, const Expr *body) {
    const Value *v = m->out[0];
    Op *op = graph_new_op(g, OP_map, m->n_in, m->in, 1);
    op->body = body;
    op->src = m->src;
    Value *out = graph_new_value(g, op, 0, dt, v->rank, v->dims);
    graph_insert_before(g, m, op);
    graph_drop_inputs(g, op);
    return out;
}

typedef struct Reads {
    const Op *m;
    bool inside;
} Reads;

static void check_read(void *user, const Expr *e) {
    Reads *r = user;
    const Value *out = r->m->out[0];
    int64_t lo, hi;
    for (int i = 0; e->op == EX_load && i < e->n; i++)
        r->inside &= ex_bounds(e->arg[i], out->rank, out->shape, &lo, &hi) && lo >= 0 &&
                     hi < r->m->in[e->k.i]->shape[i];
}

/* Does all that e loads exist for every element of m? */
static bool reads_inside(const Op *m, const Expr *e, Arena *arena) {
    Reads r = {m, true};
    if (e) ex_visit(arena, e, check_read, &r);
    return r.inside;
}

/* Brings the rim of m, if it has one, to a tensor of bytes that m decodes. The scale and the zero
 * point are then read there, too. */
static bool pad_bytes(Graph *g, Op *m, Decoded *d) {
    Exprs *x = g->x;
    DType dt = (DType)d->q->dt;
    const Value *v = m->out[0];
    if (!d->inside) return true;
    if (!reads_inside(m, d->scale, g->arena) || !reads_inside(m, d->zero, g->arena)) return false;
    const Expr *fill = ex_int(x, dt, 0), *own[MAX_RANK];
    if (d->zero && ex_is_const(d->zero)) {
        fill = ex_int(x, dt, d->zero->k.i);
        if (fill->k.i != d->zero->k.i) return false;
    } else if (d->zero) {
        fill = byte_load(d->zero);
        if (!fill || fill->dt != dt) return false;
    }
    Value **in = ARENA_ARRAY(g->arena, m->n_in + 1, Value *);
    memcpy(in, m->in, (size_t)m->n_in * sizeof *in);
    in[m->n_in] = map_before(g, m, dt, ex_select(x, d->inside, d->q, fill));
    for (int i = 0; i < v->rank; i++) own[i] = ex_var(x, i);
    d->q = ex_load(x, dt, m->n_in, v->rank, own);
    d->inside = NULL;
    m->in = in;
    m->n_in++;
    m->body = decode(x, d, v->dt);
    graph_drop_inputs(g, m);
    return read_decoded(x, m->body, d);
}

/* --- sums ------------------------------------------------------------------------------------- */

typedef struct Sum {
    Graph *g;
    Exprs *x;
    const Target *target;
    Op *op;
    int rank, n; /* coordinates of the result; all */
    int64_t extent[MAX_RANK];
    Value **in; /* the inputs to be */
    int n_in;
    Decoded part[2]; /* over the coordinates of op; q NULL: not decoded */
} Sum;

static Value *input_of(const Sum *s, const Expr *load) {
    return s->in[load->k.i];
}

static uint32_t vars_of(const Expr *e) {
    return e ? (uint32_t)ex_vars(e) : 0;
}

static bool is_summed(const Sum *s, const Expr *e) {
    return vars_of(e) >> s->rank != 0;
}

static const Expr *part_of(Sum *s, const Expr *e, const int *to, int n_to, int rank,
                           const Expr *const *index) {
    if (!e) return NULL;
    e = ex_subst_vars(s->x, renumber_loads(s->x, e, n_to, to), rank, index);
    return ex_simplify(s->x, e, s->n, s->extent);
}

/* A zero point that is the same everywhere is a number. */
static const Expr *uniform(const Sum *s, const Expr *zero) {
    const Expr *load = zero ? byte_load(zero) : NULL;
    const Value *v = load ? s->in[load->k.i] : NULL;
    if (v && value_is_uniform(v)) zero = ex_int(s->x, DT_i32, dt_load(v->dt, v->data, 0).i);
    return zero && ex_is_zero(zero) ? NULL : zero;
}

/* Does the load find what is summed side by side? */
static bool along_depth(const Sum *s, const Expr *q) {
    return q->n && is_summed(s, q->arg[q->n - 1]);
}

static bool index_loads(const Expr *load) {
    bool any = false;
    for (int i = 0; i < load->n; i++) any |= load->arg[i]->loads;
    return any;
}

/* Has `from` a dimension for whatever is summed that q has one for? */
static bool keeps_dimensions(const Sum *s, const Expr *q, const Expr *from) {
    for (int k = s->rank; k < s->n; k++)
        if (load_dimension(q, k) >= 0 && load_dimension(from, k) < 0) return false;
    return true;
}

/* The load of bytes from where they lay before they were only moved; but not if they were to have
 * what is summed side by side or, unless both factors are computed, of which one is laid out anew
 * anyway, in a dimension of its own. */
static const Expr *before_moves(Sum *s, const Expr *q, bool computed) {
    Value *v = input_of(s, q);
    const Expr *at = q;
    for (const Op *m; (m = v->def)->kind == OP_map && m->n_in == 1; v = m->in[0]) {
        if (m->body->op != EX_load || index_loads(m->body)) break;
        const Expr *from = ex_subst_vars(s->x, m->body, v->rank, at->arg);
        from = ex_simplify(s->x, from, s->n, s->extent);
        if (along_depth(s, at) && !along_depth(s, from)) break;
        if (!computed && !keeps_dimensions(s, at, from)) break;
        at = from;
    }
    if (at == q) return q;
    return ex_load(s->x, v->dt, list_add(s->in, &s->n_in, v), at->n, at->arg);
}

/* Reads factor `load` as decoded bytes over the coordinates of the operator. */
static bool read_part(Sum *s, const Expr *load, Decoded *d) {
    if (load->op != EX_load) return false;
    Value *seen = s->op->in[load->k.i], *made = through_reshape(seen);
    Op *m = decoding(s->g, seen, d);
    const Expr *index[MAX_RANK];
    if (!m || !pad_bytes(s->g, m, d)) {
        *d = (Decoded){NULL};
        return false;
    }
    if (seen == made)
        memcpy(index, load->arg, (size_t)load->n * sizeof *index);
    else
        reshape_index(s->x, seen->rank, seen->shape, load->arg, made->rank, made->shape, index);
    int *to = ARENA_ARRAY(s->g->arena, m->n_in + 1, int);
    for (int i = 0; i < m->n_in; i++) to[i] = list_add(s->in, &s->n_in, m->in[i]);
    d->q = part_of(s, d->q, to, m->n_in, made->rank, index);
    d->zero = uniform(s, part_of(s, d->zero, to, m->n_in, made->rank, index));
    d->scale = part_of(s, d->scale, to, m->n_in, made->rank, index);
    return d->q->op == EX_load;
}

static const Expr *rebase(Sum *s, Builder *b, const Expr *e) {
    return build_rebased(b, s->in, e);
}

/* A builder of the tensor over those coordinates of the result that are in `vars`; the others
 * are 1. */
static Builder over(Sum *s, uint32_t vars) {
    int64_t shape[MAX_RANK];
    for (int i = 0; i < s->rank; i++) shape[i] = vars >> i & 1 ? s->extent[i] : 1;
    return build(s->g, s->rank, shape);
}

/* The element of such a tensor that belongs to the result at hand, as an input of the operator. */
static const Expr *element_of(Sum *s, Value *v) {
    const Expr *index[MAX_RANK];
    if (value_is_const(v) && value_numel(v) == 1)
        return ex_const(s->x, v->dt, dt_load(v->dt, v->data, 0));
    for (int i = 0; i < v->rank; i++) index[i] = v->shape[i] == 1 ? ex_i(s->x, 0) : ex_var(s->x, i);
    return ex_load(s->x, v->dt, list_add(s->in, &s->n_in, v), v->rank, index);
}

/* A window that slides over bytes reads each several times: they are first summed along what it
 * has as a whole (channels). Replaces the load by one of those sums; the coordinate that was
 * summed, or -1 if there is none. */
static int sum_along(Sum *s, const Expr **q) {
    Exprs *x = s->x;
    Value *v = input_of(s, *q);
    bool slides = false;
    for (int i = 0; i < (*q)->n; i++) {
        uint32_t vars = vars_of((*q)->arg[i]);
        slides |= vars >> s->rank && vars & ((1u << s->rank) - 1);
    }
    for (int k = s->rank; k < s->n && slides && !value_is_const(v); k++) {
        int d = load_dimension(*q, k);
        if (d < 0 || v->shape[d] != s->extent[k] || (*q)->arg[d] != ex_var(x, k)) continue;
        int64_t dims[MAX_RANK];
        const Expr *own[MAX_RANK], *index[MAX_RANK];
        memcpy(dims, v->dims, (size_t)v->rank * sizeof *dims);
        memcpy(index, (*q)->arg, (size_t)v->rank * sizeof *index);
        dims[d] = 1;
        index[d] = ex_i(x, 0);
        Builder b = build(s->g, v->rank, dims);
        for (int i = 0; i < v->rank; i++) own[i] = ex_var(x, i);
        own[d] = build_red(&b, s->extent[k]);
        const Expr *e = ex_cast(x, DT_i32, build_load(&b, v, own));
        Value *sums = build_reduce(&b, DT_i32, COMBINE_sum, e, NULL);
        *q = ex_load(x, DT_i32, list_add(s->in, &s->n_in, sums), v->rank, index);
        return k;
    }
    return -1;
}

/* The sum of part i alone. */
static const Expr *sum_of(Sum *s, int i) {
    const Expr *q = s->part[i].q, *to[MAX_RANK];
    int summed = sum_along(s, &q);
    Builder b = over(s, vars_of(s->part[i].q));
    for (int k = 0; k < s->n; k++)
        to[k] = k < s->rank   ? ex_var(s->x, k)
                : k == summed ? ex_i(s->x, 0)
                              : build_red(&b, s->extent[k]);
    q = ex_cast(s->x, DT_i32, rebase(s, &b, ex_subst_vars(s->x, q, s->n, to)));
    return element_of(s, build_reduce(&b, DT_i32, COMBINE_sum, q, NULL));
}

/* e as a tensor of its own, so that it is folded if it can be. */
static const Expr *apart(Sum *s, DType dt, const Expr *e) {
    if (ex_is_const(e)) return ex_cast(s->x, dt, e);
    Builder b = over(s, vars_of(e));
    return element_of(s, build_map(&b, dt, rebase(s, &b, e)));
}

/* What is to be added to the sum of products of bytes; NULL: nothing. */
static const Expr *correction(Sum *s, DType dt, int64_t products) {
    Exprs *x = s->x;
    const Expr *total = NULL, *za = s->part[0].zero, *zb = s->part[1].zero;
    if (!s->part[1].q) {
        if (za) total = ex_mul(x, za, ex_int(x, DT_i32, -products));
        return total ? apart(s, dt, total) : NULL;
    }
    if (za) total = ex_un(x, EX_neg, ex_mul(x, za, sum_of(s, 1)));
    if (zb) {
        const Expr *e = ex_mul(x, zb, sum_of(s, 0));
        total = total ? ex_sub(x, total, e) : ex_un(x, EX_neg, e);
    }
    if (za && zb)
        total = ex_add(x, total, ex_mul(x, ex_mul(x, za, zb), ex_int(x, DT_i32, products)));
    return total ? apart(s, dt, total) : NULL;
}

/* --- several products at a time
 * --------------------------------------------------------------------- */

/* What moves bytes, with constants around them, for words. */
static const Expr *moved_words(Builder *b, Value *words, const Expr *e) {
    if (e->op == EX_select)
        return ex_select(b->x, e->arg[0], moved_words(b, words, e->arg[1]),
                         moved_words(b, words, e->arg[2]));
    return e->op == EX_load ? build_load(b, words, e->arg) : ex_int(b->x, DT_i16, e->k.i);
}

/* Bytes as words. What was moved and padded is so afterwards, so that its maker can widen it. */
static Value *as_words(Graph *g, Value *v) {
    Op *m = v->def;
    const Expr *e = m->kind == OP_map && m->n_in == 1 ? m->body : NULL;
    while (e && e->op == EX_select && ex_is_const(e->arg[2]) && !e->arg[0]->loads) e = e->arg[1];
    bool moves = e && e->op == EX_load;
    Value *from = moves ? m->in[0] : v;
    Builder b = build(g, from->rank, from->dims);
    Value *words = build_map(&b, DT_i16, ex_cast(g->x, DT_i32, build_in(&b, from)));
    if (!moves) return words;
    Builder moved = build(g, v->rank, v->dims);
    return build_map(&moved, DT_i16, moved_words(&moved, words, m->body));
}

/* Gives part i the type: bytes of the other sign are moved by 128, words hold them as they are. */
static void change_type(Sum *s, int i, DType dt) {
    Exprs *x = s->x;
    Decoded *d = &s->part[i];
    if (d->q->dt == dt) return;
    Value *v = input_of(s, d->q);
    if (dt == DT_i16) {
        int at = list_add(s->in, &s->n_in, as_words(s->g, v));
        d->q = ex_load(x, dt, at, d->q->n, d->q->arg);
        return;
    }
    int by = dt == DT_i8 ? -128 : 128;
    Builder b = build(s->g, v->rank, v->shape);
    const Expr *e = ex_add(x, ex_cast(x, DT_i32, build_in(&b, v)), ex_int(x, DT_i32, by));
    int at = list_add(s->in, &s->n_in, build_map(&b, dt, e));
    d->q = ex_load(x, dt, at, d->q->n, d->q->arg);
    d->zero = ex_add(x, d->zero ? d->zero : ex_int(x, DT_i32, 0), ex_int(x, DT_i32, by));
    if (ex_is_zero(d->zero)) d->zero = NULL;
}

/* How many elements of part i the sum reads. */
static int64_t size_of(const Sum *s, int i) {
    int64_t size = 1;
    for (int k = 0; k < s->n; k++)
        if (vars_of(s->part[i].q) >> k & 1) size *= s->extent[k];
    return size;
}

/* Are products of constant columns faster as bytes than as words? Bytes of an input stay where they
 * are; words would be laid out anew. */
static bool relieved(const Sum *s, int column) {
    Arena *arena = s->g->arena;
    const Expr *columns = s->part[column].q, *rows = s->part[!column].q;
    Value *v = input_of(s, columns), *from = input_of(s, rows);
    ConstantColumns c;
    if (!s->target->byte_pairs || !value_is_const(v) || s->op->n_red != 1 ||
        !relieve_columns_of(v, rows, columns, s->rank, s->extent, &c))
        return false;
    if (through_reshape(from)->def->kind == OP_input &&
        load_dimension(rows, s->rank) != from->rank - 1)
        return false;
    const double saved = strassen_saves(s->target, s->op->out[0], s->extent[c.column], c.depth,
                                        size_of(s, !column), size_of(s, column));
    return relieve_pays(arena, s->target, &c, 1 - saved);
}

/* The part, neither of them constant, that has the columns: the one with the last coordinate. But
 * columns are laid out anew, so if those have their depth side by side, as rows should, and are
 * more than the others and the result, which is then written across its rows, those are. */
static int computed_columns(const Sum *s, uint32_t either, uint32_t spatial) {
    int column = 1;
    for (int k = 0; k < s->rank; k++)
        if (either >> k & 1 && s->extent[k] > 1) column = vars_of(s->part[1].q) >> k & 1;
    bool many = size_of(s, column) > size_of(s, !column) + shape_numel(s->rank, s->extent);
    many &= (vars_of(s->part[!column].q) & ~vars_of(s->part[column].q) & spatial) != 0;
    return many && along_depth(s, s->part[column].q) ? !column : column;
}

/* Rows as the target wants them, columns signed; both words where the target adds products of bytes
 * by way of these, and rows are many enough that widening both beforehand pays, unless bytes are
 * faster even so. False if the sum is no product of a matrix. */
static bool as_matrix_product(Sum *s) {
    uint32_t spatial = (1u << s->rank) - 1;
    uint32_t vars[2] = {vars_of(s->part[0].q), vars_of(s->part[1].q)};
    uint32_t either = (vars[0] ^ vars[1]) & spatial;
    bool constant[2];
    for (int i = 0; i < 2; i++) constant[i] = value_is_const(input_of(s, s->part[i].q));
    int column = constant[1]; /* the part that has the columns */
    if (!constant[0] && !constant[1]) column = computed_columns(s, either, spatial);
    if (!(vars[column] & ~vars[!column] & spatial)) return false;
    int64_t rows = 1;
    for (int k = 0; k < s->rank; k++)
        if (vars[!column] & ~vars[column] & 1u << k) rows *= s->extent[k];
    bool words = s->target->word_products && !s->target->byte_dots && rows >= ROWS_OF_WORDS &&
                 !relieved(s, column);
    change_type(s, column, words ? DT_i16 : DT_i8);
    change_type(s, !column, words ? DT_i16 : target_row_bytes(s->target));
    return true;
}

/* The coordinate of a window, the first of which the bytes are worth taking by fours; -1: none. */
static int window_depth(const Sum *s, int weights) {
    for (int r = s->rank; r < s->n; r++) {
        int64_t fours = (s->extent[r] + BYTES_AT_ONCE - 1) / BYTES_AT_ONCE;
        if (3 * BYTES_AT_ONCE * fours <= 4 * s->extent[r] &&
            load_dimension(s->part[weights].q, r) >= 0)
            return r;
    }
    return -1;
}

/* Weights of a window that slides over each channel for itself (a depthwise convolution) as signed
 * bytes, what it slides over as the target wants rows. A coordinate of the window becomes a
 * multiple of four; of the bytes that are added none is read. Returns the coordinate, and the part
 * that has the weights; -1 if the sum is none of that kind. */
static int as_window(Sum *s, int *weights) {
    int w = value_is_const(input_of(s, s->part[1].q)), r = window_depth(s, w);
    bool channels = false;
    for (int k = 0; k < s->rank; k++)
        channels |= s->extent[k] >= BYTES_AT_ONCE && load_dimension(s->part[w].q, k) >= 0 &&
                    load_dimension(s->part[!w].q, k) >= 0;
    if (!channels || r < 0 || !value_is_const(input_of(s, s->part[w].q))) return -1;
    change_type(s, w, DT_i8);
    change_type(s, !w, target_row_bytes(s->target));
    int64_t spare = s->extent[r] % BYTES_AT_ONCE;
    if (spare) {
        Decoded *d = &s->part[w];
        Value *v = input_of(s, d->q);
        int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
        after[load_dimension(d->q, r)] = BYTES_AT_ONCE - spare;
        Value *padded = g_pad(s->g, v, before, after, (Scalar){.i = 0});
        d->q = ex_load(s->x, v->dt, list_add(s->in, &s->n_in, padded), d->q->n, d->q->arg);
    }
    *weights = w;
    return r;
}

/* --- rewriting -------------------------------------------------------------------------------- */

typedef struct Post {
    Exprs *x;
    const Expr *acc;
} Post;

static const Expr *post_leaf(void *user, const Expr *e, const Expr *const *args) {
    Post *p = user;
    if (e->op == EX_acc) return p->acc;
    return e->op == EX_load ? ex_rebuild(p->x, e, args) : e;
}

static void finish(Sum *s, const Expr *body, const Expr *acc) {
    Op *op = s->op;
    Post p = {s->x, acc};
    op->body = ex_simplify(s->x, body, s->n, s->extent);
    op->post = ex_rewrite(s->x, op->post, post_leaf, &p);
    op->in = arena_copy(s->g->arena, s->in, (size_t)s->n_in * sizeof *s->in);
    op->n_in = s->n_in;
    graph_drop_inputs(s->g, op);
}

/* A whole float that sums so many products of bytes less zero points, which are bytes, too, in the
 * form that vectors can cast. */
static const Expr *as_rounding(Exprs *x, const Expr *acc, int64_t products) {
    double most = (double)products * 255 * 255;
    if (acc->dt != DT_f32 || most > ROUND_LIMIT) return acc;
    acc = ex_bin(x, EX_max, acc, ex_const(x, DT_f32, (Scalar){.f = -most}));
    return ex_un(x, EX_round, ex_bin(x, EX_min, acc, ex_const(x, DT_f32, (Scalar){.f = most})));
}

static void in_integers(Sum *s, bool product) {
    Exprs *x = s->x;
    const Expr *scale = s->part[0].scale;
    DType result = (DType)s->op->body->dt, sum = DT_i32;
    int64_t products = shape_numel(s->op->n_red, s->op->red);
    if (products > MOST_PRODUCTS || s->op->n_red == 0) return;
    for (int i = 0; i < 1 + product; i++)
        if (is_summed(s, s->part[i].scale) || is_summed(s, s->part[i].zero)) return;
    if (product && s->part[1].scale)
        scale = scale ? ex_mul(x, scale, s->part[1].scale) : s->part[1].scale;
    bool matrix = product && s->target->byte_products && as_matrix_product(s);
    int window = -1, weights = 1;
    if (product && !matrix && s->target->byte_dots) window = as_window(s, &weights);
    if (!matrix && window < 0 && s->target->vector_types &&
        products * 255 * (product ? 255 : 1) <= EXACT_FLOAT)
        sum = DT_f32;
    const Expr *acc = ex_acc(x, sum), *more = correction(s, sum, products);
    if (more) acc = ex_add(x, acc, more);
    acc = ex_cast(x, result, result == DT_i32 ? as_rounding(x, acc, products) : acc);
    if (scale) acc = ex_mul(x, acc, apart(s, DT_f32, scale));
    const Expr *body = NULL;
    for (int i = 0; i < 1 + product; i++) {
        const Expr *q = s->part[i].q;
        if (sum == DT_f32 && value_is_const(input_of(s, q))) { /* converted when compiling */
            Value *v = input_of(s, q);
            Builder b = build(s->g, v->rank, v->shape);
            const Expr *e = ex_cast(x, DT_i32, build_in(&b, v));
            q = ex_load(x, sum, list_add(s->in, &s->n_in, build_map(&b, sum, e)), q->n, q->arg);
        } else {
            q = ex_cast(x, sum, ex_cast(x, DT_i32, q));
        }
        if (window >= 0 && i != weights && s->extent[window] % BYTES_AT_ONCE) {
            const Expr *inside = ex_lt(x, ex_var(x, window), ex_i(x, s->extent[window]));
            q = ex_select(x, inside, q, ex_int(x, DT_i32, 0));
        }
        body = body ? ex_mul(x, body, q) : q;
    }
    if (window >= 0) {
        int64_t *red = arena_copy(s->g->arena, s->op->red, (size_t)s->op->n_red * sizeof *red);
        int64_t groups = (s->extent[window] + BYTES_AT_ONCE - 1) / BYTES_AT_ONCE;
        s->extent[window] = red[window - s->rank] = groups * BYTES_AT_ONCE;
        s->op->red = red;
    }
    finish(s, body, acc);
}

/* Are constants of part i better floats when compiling: does a core's cache hold these, and do many
 * results read each? */
static bool are_better_decoded(const Sum *s, int i) {
    const Value *v = input_of(s, s->part[i].q), *out = s->op->out[0];
    const uint32_t vars = vars_of(s->part[i].q);
    int64_t results = 1;
    for (int k = 0; k < s->rank; k++)
        if (!(vars >> k & 1)) results *= s->extent[k];
    return s->target->vector_types && !dims_vary(out->rank, out->dims) && results >= MANY_RESULTS &&
           value_numel(v) * (int64_t)sizeof(float) <= s->target->l2_bytes / 2;
}

/* Only part i is decoded, and constant: its scale comes last. */
static void weights_alone(Sum *s, int i) {
    Decoded d = s->part[i];
    DType dt = (DType)s->op->body->dt;
    if (!d.scale || dt != DT_f32 || is_summed(s, d.scale)) return;
    if (!value_is_const(input_of(s, d.q)) || are_better_decoded(s, i)) return;
    const Expr *acc = ex_mul(s->x, ex_acc(s->x, dt), apart(s, DT_f32, d.scale));
    d.scale = NULL;
    finish(s, ex_mul(s->x, s->op->body->arg[!i], decode(s->x, &d, dt)), acc);
}

static Sum read_reduction(Graph *g, Op *op, const Target *t) {
    Sum s = {.g = g, .x = g->x, .target = t, .op = op, .rank = op->out[0]->rank};
    s.n = op_extents(op, s.extent);
    s.in = ARENA_ARRAY(g->arena, op->n_in + 4 * MAX_RANK, Value *);
    for (int i = 0; i < op->n_in; i++) s.in[s.n_in++] = op->in[i];
    return s;
}

static void rewrite_sum(Graph *g, Op *op, const Target *t) {
    if (op->body->dt != DT_f32 && op->body->dt != DT_i32) return;
    bool product = op->body->op == EX_mul;
    Sum s = read_reduction(g, op, t);
    bool read[2] = {false, false};
    for (int i = 0; i < 1 + product; i++)
        read[i] = read_part(&s, product ? op->body->arg[i] : op->body, &s.part[i]);
    bool computed = product;
    for (int i = 0; i < 2; i++) computed &= read[i] && !value_is_const(input_of(&s, s.part[i].q));
    for (int i = 0; i < 2; i++)
        if (read[i]) s.part[i].q = before_moves(&s, s.part[i].q, computed);
    if (read[0] && (read[1] || !product))
        in_integers(&s, product);
    else if (read[0] || read[1])
        weights_alone(&s, read[1]);
}

/* --- the greatest and the least --------------------------------------------------------------- */

#define MOST_PLACES 64 /* of a window, to be looked at one by one */

/* Does some place of the window fulfil the condition, whatever the window? */
static bool somewhere(const Sum *s, const Expr *inside) {
    const Expr *to[MAX_RANK];
    int64_t places = shape_numel(s->op->n_red, s->op->red);
    for (int i = 0; i < s->rank; i++) to[i] = ex_var(s->x, i);
    for (int64_t at = 0; at < places && places <= MOST_PLACES; at++) {
        int64_t rest = at;
        for (int i = s->rank; i < s->n; rest /= s->extent[i++])
            to[i] = ex_i(s->x, rest % s->extent[i]);
        const Expr *there = ex_subst_vars(s->x, inside, s->n, to);
        if (ex_is_int(ex_simplify(s->x, there, s->rank, s->extent), 1)) return true;
    }
    return false;
}

/* `e` with what it is where it is not the identity of op's combination, and where that is (NULL:
 * everywhere). */
static const Expr *without_rim(const Op *op, const Expr *e, const Expr **inside) {
    *inside = NULL;
    if (e->op != EX_select || !ex_is_const(e->arg[2]) || e->dt != DT_f32 ||
        e->arg[2]->k.f != combine_identity(op->combine, DT_f32).f)
        return e;
    *inside = e->arg[0];
    return e->arg[1];
}

/* Puts the rim around what the reduction reads into its body. */
static void inline_rim(Graph *g, Op *op) {
    const Expr *e = op->body, *inside;
    const Op *m = e->op == EX_load ? op->in[e->k.i]->def : NULL;
    int64_t work = 0;
    if (!m || m->kind != OP_map) return;
    without_rim(op, m->body, &inside);
    if (inside) op_inline(g, op, (int)e->k.i, MAX_RANK, &work);
}

/* The greatest of decoded bytes is the greatest byte, decoded: a reduction before op finds the
 * latter, and op becomes a map that decodes it. The least alike. False, and nothing changed, if op
 * reads no decoded bytes. */
static bool rewrite_extreme(Graph *g, Op *op, const Target *t) {
    Exprs *x = g->x;
    const Expr *inside, *e = without_rim(op, op->body, &inside), *own[MAX_RANK];
    Sum s = read_reduction(g, op, t);
    Decoded d;
    if (e->dt != DT_f32 || !read_part(&s, e, &d) || (inside && !somewhere(&s, inside)))
        return false;
    if ((d.scale && !(ex_is_const(d.scale) && d.scale->k.f > 0)) ||
        (d.zero && !ex_is_const(d.zero)))
        return false;
    Op *found = graph_new_op(g, OP_reduce, s.n_in, s.in, 1);
    found->combine = op->combine;
    found->n_red = op->n_red;
    found->red = op->red;
    found->body = ex_cast(x, DT_i32, d.q);
    if (inside)
        found->body = ex_select(x, inside, found->body,
                                ex_const(x, DT_i32, combine_identity(op->combine, DT_i32)));
    const Expr *extreme = ex_acc(x, DT_i32);
    if (d.q->dt == DT_i8) { /* it is seen to be one of the bytes (nest_chosen_bytes) */
        const Expr *bound = ex_i(x, combine_identity(op->combine, DT_i8).i);
        extreme = ex_bin(x, combine_expr(op->combine), extreme, bound);
    }
    found->post = ex_cast(x, (DType)d.q->dt, extreme);
    found->src = op->src;
    const Value *out = op->out[0];
    Value *v = graph_new_value(g, found, 0, (DType)d.q->dt, out->rank, out->dims);
    graph_insert_before(g, op, found);
    graph_drop_inputs(g, found);
    for (int i = 0; i < s.rank; i++) own[i] = ex_var(x, i);
    d.q = ex_load(x, v->dt, list_add(s.in, &s.n_in, v), s.rank, own);
    Post p = {x, decode(x, &d, DT_f32)};
    op->kind = OP_map;
    op->n_red = 0;
    op->body = ex_rewrite(x, op->post, post_leaf, &p);
    op->post = NULL;
    op->in = s.in;
    op->n_in = s.n_in;
    graph_drop_inputs(g, op);
    return true;
}

/* The greatest, or the least, of unsigned bytes is found among words with a sign, which vectors
 * compare. */
static void as_signed(Exprs *x, Op *op) {
    const Expr *e = op->body, *acc = ex_acc(x, DT_u32);
    if (e->dt != DT_u32 || e->op != EX_cast || e->arg[0]->dt != DT_u8) return;
    if (op->post != ex_cast(x, DT_u8, acc)) return;
    op->body = ex_cast(x, DT_i32, e->arg[0]);
    op->post = ex_cast(x, DT_u8, ex_acc(x, DT_i32));
}

static void rewrite_reduction(Graph *g, Op *op, const Target *t) {
    Op *last = g->last;
    if (op->kind != OP_reduce) return;
    if (op->combine == COMBINE_sum) rewrite_sum(g, op, t);
    if (op->combine == COMBINE_max || op->combine == COMBINE_min) {
        Op old = *op;
        inline_rim(g, op);
        if (!rewrite_extreme(g, op, t)) *op = old;
        as_signed(g->x, op);
    }
    graph_take_in(g, last, op);
}

/* An encoding with x / c as x * (1 / c). */
static const Expr *by_reciprocal(Exprs *x, const Expr *e) {
    const Expr *arg[2] = {e->n > 0 ? e->arg[0] : NULL, e->n > 1 ? e->arg[1] : NULL};
    const Expr *product = ex_by_reciprocal(x, e);
    if (product) return product;
    if (e->op != EX_cast && e->op != EX_round && e->op != EX_min && e->op != EX_max &&
        e->op != EX_add)
        return e;
    arg[0] = by_reciprocal(x, arg[0]);
    return ex_rebuild(x, e, arg);
}

/* Is what the operator makes a float with a last bit that depends on how it is computed? */
static bool is_open(Exprs *x, const Op *op, const bool *open, int values) {
    Decoded d;
    if (!dt_is_float(op->out[0]->dt) || op->kind == OP_input || op->kind == OP_const) return false;
    if (op->kind == OP_reshape || (op->kind == OP_map && moved_input(op->body) >= 0)) {
        bool any = false;
        for (int i = 0; i < op->n_in; i++) any |= op->in[i]->id < values && open[op->in[i]->id];
        return any;
    }
    return op->kind != OP_map || !read_decoded(x, op->body, &d);
}

void pass_integer(Graph *g, const PassOptions *o) {
    int values = g->n_values;
    bool *open = ARENA_ARRAY(g->arena, values, bool); /* by value id */
    for (Op *op = g->first; op; op = op->next) {
        if (op->sub) pass_integer(op->sub, o);
        if (op->n_out != 1 || op->out[0]->id >= values) continue;
        if (op->kind == OP_map) {
            bool from = false;
            for (int i = 0; i < op->n_in; i++)
                from |= op->in[i]->id < values && open[op->in[i]->id];
            sink_into(g, op);
            skip_coding(g, op);
            if (from && dt_is_byte(op->out[0]->dt)) op->body = by_reciprocal(g->x, op->body);
        }
        /* what has no elements need not be read */
        if (value_numel(op->out[0])) rewrite_reduction(g, op, o->target);
        open[op->out[0]->id] = is_open(g->x, op, open, values);
    }
    pass_dce(g, o);
    for (Op *op = g->first; op; op = op->next) graph_fold(g, op, MOST_GROWTH);
    pass_dce(g, o);
}
