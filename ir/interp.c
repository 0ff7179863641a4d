/* Interpretation of single operators; see interp.h. Bodies run as tapes (tape.h), in chunks of
 * lanes along the flattened coordinates; graphs are in interp_graph.c. */
#include "ir/interp_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 256

/* A load outside its tensor: the graph is wrong, which is our own bug; nothing after it has
 * meaning. */
_Noreturn static void interp_fault(const Op *op, const TapeFault *fault) {
    fprintf(
        stderr,
        "mlcc: error[E9002]: interpreter: %s%s%s: input %d is read at index %lld in dimension %d, "
        "which has extent %lld\n",
        op_kind_name(op->kind), op->src ? " of " : "", op->src ? op->src : "", fault->source,
        (long long)fault->index, fault->dim, (long long)fault->extent);
    exit(ERR_BUG);
}

static void check_fault(const OpPlan *p) {
    if (p->body.fault.set) interp_fault(p->op, &p->body.fault);
    if (p->post.fault.set) interp_fault(p->op, &p->post.fault);
}

/* --- combining -------------------------------------------------------------------------------- */

/* Accumulators of floats are doubles; those of integers wrap in 64 bits, which is brought to the
 * type at the end. */
static Scalar combine_two(Combine combine, DType dt, Scalar a, Scalar b) {
    if (dt_is_float(dt)) {
        switch (combine) {
        case COMBINE_sum:
            return (Scalar){.f = a.f + b.f};
        case COMBINE_prod:
            return (Scalar){.f = a.f * b.f};
        case COMBINE_max:
            return b.f != b.f || b.f > a.f ? b : a;
        case COMBINE_min:
            return b.f != b.f || b.f < a.f ? b : a;
        case COMBINE_none:
            break;
        }
        return b;
    }
    bool is_signed = dt_kind(dt) == DK_sint;
    uint64_t ua = (uint64_t)a.i, ub = (uint64_t)b.i;
    switch (combine) {
    case COMBINE_sum:
        return (Scalar){.i = (int64_t)(ua + ub)};
    case COMBINE_prod:
        return (Scalar){.i = (int64_t)(ua * ub)};
    case COMBINE_max:
        return (is_signed ? b.i > a.i : ub > ua) ? b : a;
    case COMBINE_min:
        return (is_signed ? b.i < a.i : ub < ua) ? b : a;
    case COMBINE_none:
        break;
    }
    return b;
}

static void combine_lanes(Combine combine, DType dt, Scalar *acc, const Scalar *value, int n) {
    if (combine == COMBINE_sum && dt_is_float(dt)) {
        for (int i = 0; i < n; i++) acc[i].f += value[i].f;
    } else if (combine == COMBINE_sum) {
        for (int i = 0; i < n; i++) acc[i].i = (int64_t)((uint64_t)acc[i].i + (uint64_t)value[i].i);
    } else {
        for (int i = 0; i < n; i++) acc[i] = combine_two(combine, dt, acc[i], value[i]);
    }
}

/* The accumulator as a value of its type. */
static Scalar settle(DType dt, Scalar acc) {
    return dt_cast(dt_is_float(dt) ? DT_f64 : DT_i64, dt, acc);
}

/* --- planning --------------------------------------------------------------------------------- */

static void set_tape(OpPlan *p, Tape *t, int n_vars, const int64_t *extent, int lo, int hi,
                     int width) {
    *t = (Tape){.arena = p->arena,
                .width = width,
                .n_vars = n_vars,
                .extent = arena_copy(p->arena, extent, (size_t)n_vars * sizeof *extent),
                .lane_lo = lo,
                .lane_hi = hi,
                .sources = p->sources,
                .acc = p->acc};
    tape_init(t);
}

static int clamp_width(int64_t n) {
    return n < CHUNK ? n > 0 ? (int)n : 1 : CHUNK;
}

/* A product of f32 that goes straight into a sum is not rounded on its way. */
static void keep_terms_exact(Tape *t, const Expr *e) {
    if (e->op == EX_mul || e->op == EX_add || e->op == EX_sub) {
        tape_keep_exact(t, e);
    } else if (e->op == EX_select) {
        keep_terms_exact(t, e->arg[1]);
        keep_terms_exact(t, e->arg[2]);
    }
}

static void plan_reduce(OpPlan *p, int rank, const int64_t *extent) {
    const Op *op = p->op;
    int n = rank + op->n_red;
    p->n_red = shape_numel(op->n_red, op->red);
    p->dot = dot_plan(p->arena, op);
    p->lanes_reduce = !p->dot && p->n_out < 64 && p->n_red > p->n_out;
    if (p->lanes_reduce) {
        p->width = clamp_width(p->n_red);
        p->acc = tape_lanes_new(p->arena, p->width);
        set_tape(p, &p->body, n, extent, rank, n, p->width);
    } else {
        p->width = clamp_width(p->n_out);
        p->acc = tape_lanes_new(p->arena, p->width);
        set_tape(p, &p->body, n, extent, 0, rank, p->width);
    }
    if (op->combine == COMBINE_sum) keep_terms_exact(&p->body, op->body);
    if (!p->dot) p->body_slot = tape_add(&p->body, op->body, NULL);
    set_tape(p, &p->post, rank, extent, 0, rank, p->width);
    p->post_slot = tape_add(&p->post, op->post, NULL);
}

/* The body is computed for every scanned position in the place of the output coordinate. */
static void plan_scan(OpPlan *p, int rank, const int64_t *extent) {
    const Op *op = p->op;
    p->acc = tape_lanes_new(p->arena, p->width);
    set_tape(p, &p->body, rank + 1, extent, 0, rank, p->width);
    p->body.alias = rank;
    p->body.alias_of = op->axis;
    p->body_slot = tape_add(&p->body, op->body, NULL);
    set_tape(p, &p->post, rank, extent, 0, rank, p->width);
    p->post_slot = tape_add(&p->post, op->post, NULL);
}

static void plan_scatter(OpPlan *p, const int64_t *extent) {
    const Op *op = p->op;
    set_tape(p, &p->body, op->n_upd, extent, 0, op->n_upd, p->width);
    if (op->guard) p->guard_slot = tape_add(&p->body, op->guard, NULL);
    int rank = op->out[0]->rank;
    p->target_slot = ARENA_ARRAY(p->arena, rank, TapeSlot);
    for (int i = 0; i < rank; i++) p->target_slot[i] = tape_add(&p->body, op->target[i], op->guard);
    p->body_slot = tape_add(&p->body, op->body, op->guard);
}

OpPlan *op_plan(Arena *arena, const Op *op) {
    OpPlan *p = ARENA_NEW(arena, OpPlan);
    p->op = op;
    p->arena = arena;
    p->sources = ARENA_ARRAY(arena, op->n_in, TapeSource);
    for (int i = 0; i < op->n_in; i++)
        p->sources[i] =
            (TapeSource){.dt = op->in[i]->dt, .rank = op->in[i]->rank, .shape = op->in[i]->shape};
    int64_t extent[MAX_RANK + 1];
    int n = op_extents(op, extent);
    const Value *out = op->out[0];
    p->n_out = op->kind == OP_scatter ? shape_numel(n, extent) : value_numel(out);
    p->width = clamp_width(p->n_out);
    switch (op->kind) {
    case OP_map:
        set_tape(p, &p->body, n, extent, 0, n, p->width);
        p->body_slot = tape_add(&p->body, op->body, NULL);
        break;
    case OP_reduce:
        plan_reduce(p, out->rank, extent);
        break;
    case OP_scan:
        plan_scan(p, out->rank, extent);
        break;
    case OP_scatter:
        plan_scatter(p, extent);
        break;
    default:
        break;
    }
    return p;
}

/* --- running ---------------------------------------------------------------------------------- */

static int chunk_at(const OpPlan *p, int64_t first, int64_t total) {
    int64_t left = total - first;
    return left < p->width ? (int)left : p->width;
}

static void run_map(OpPlan *p, void *out) {
    DType dt = p->op->out[0]->dt;
    for (int64_t first = 0; first < p->n_out; first += p->width) {
        int n = chunk_at(p, first, p->n_out);
        tape_move(&p->body, first, n);
        check_fault(p);
        tape_save(dt, out, first, p->body_slot.lanes, n);
    }
}

/* acc holds sums for n outputs from `first`: settles them, computes `post`, stores. */
static void finish_outputs(OpPlan *p, int64_t first, int n, void *out) {
    DType acc_dt = (DType)p->op->body->dt;
    for (int i = 0; i < n; i++) p->acc[i] = settle(acc_dt, p->acc[i]);
    tape_move(&p->post, first, n);
    check_fault(p);
    tape_save(p->op->out[0]->dt, out, first, p->post_slot.lanes, n);
}

/* Steps coords[lo..hi) to the next position; false after the last. */
static bool next_position(int64_t *coords, const int64_t *extent, int lo, int hi) {
    for (int v = hi - 1; v >= lo; v--) {
        if (++coords[v] < extent[v]) return true;
        coords[v] = 0;
    }
    return false;
}

/* Lanes are outputs; the reduction is serial. */
static void reduce_by_output(OpPlan *p, int64_t first, int n) {
    const Op *op = p->op;
    DType dt = (DType)op->body->dt;
    int rank = op->out[0]->rank;
    Scalar identity = combine_identity(op->combine, dt);
    for (int i = 0; i < n; i++) p->acc[i] = identity;
    if (p->n_red == 0) return;
    int64_t coords[MAX_RANK + 1] = {0};
    tape_move(&p->body, first, n);
    do {
        tape_serial(&p->body, coords);
        tape_step(&p->body, n);
        check_fault(p);
        combine_lanes(op->combine, dt, p->acc, p->body_slot.lanes, n);
    } while (next_position(coords, p->body.extent, rank, rank + op->n_red));
}

/* Lanes are the reduction's positions; one output. */
static Scalar reduce_one(OpPlan *p, const int64_t *coords) {
    const Op *op = p->op;
    DType dt = (DType)op->body->dt;
    Scalar result = combine_identity(op->combine, dt);
    tape_serial(&p->body, coords);
    for (int64_t first = 0; first < p->n_red; first += p->width) {
        int n = chunk_at(p, first, p->n_red);
        tape_move(&p->body, first, n);
        tape_step(&p->body, n);
        check_fault(p);
        for (int i = 0; i < n; i++)
            result = combine_two(op->combine, dt, result, p->body_slot.lanes[i]);
    }
    return result;
}

static void run_reduce(OpPlan *p, const void *const *in, void *out) {
    if (p->n_out == 0) return;
    if (p->lanes_reduce) {
        int64_t coords[MAX_RANK + 1] = {0}, at = 0;
        do {
            p->acc[0] = reduce_one(p, coords);
            finish_outputs(p, at++, 1, out);
        } while (next_position(coords, p->body.extent, 0, p->op->out[0]->rank));
        return;
    }
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    if (p->dot) dot_start(&scratch, p->dot, in);
    for (int64_t first = 0; first < p->n_out; first += p->width) {
        int n = chunk_at(p, first, p->n_out);
        if (p->dot)
            dot_run(p->dot, first, n, p->acc);
        else
            reduce_by_output(p, first, n);
        finish_outputs(p, first, n, out);
    }
    arena_free(&scratch);
}

/* Turns the bodies of one line along the axis (`stride` apart) into accumulated values. */
static void scan_line(const Op *op, Scalar *line, int64_t extent, int64_t stride) {
    DType dt = (DType)op->body->dt;
    Scalar acc = combine_identity(op->combine, dt);
    for (int64_t k = 0; k < extent; k++) {
        Scalar *at = &line[(op->reverse ? extent - 1 - k : k) * stride];
        Scalar next = combine_two(op->combine, dt, acc, *at);
        *at = op->exclusive ? acc : next;
        acc = next;
    }
}

static void run_scan(OpPlan *p, void *out) {
    const Op *op = p->op;
    if (p->n_out == 0) return;
    const Value *v = op->out[0];
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    Scalar *all = ARENA_ARRAY(&scratch, p->n_out, Scalar);
    for (int64_t first = 0; first < p->n_out; first += p->width) {
        int n = chunk_at(p, first, p->n_out);
        tape_move(&p->body, first, n);
        check_fault(p);
        memcpy(all + first, p->body_slot.lanes, (size_t)n * sizeof *all);
    }
    int64_t extent = v->shape[op->axis], stride = 1;
    for (int i = op->axis + 1; i < v->rank; i++) stride *= v->shape[i];
    for (int64_t line = 0; line < p->n_out / extent; line++)
        scan_line(op, all + line / stride * extent * stride + line % stride, extent, stride);
    for (int64_t first = 0; first < p->n_out; first += p->width) {
        int n = chunk_at(p, first, p->n_out);
        memcpy(p->acc, all + first, (size_t)n * sizeof *all);
        finish_outputs(p, first, n, out);
    }
    arena_free(&scratch);
}

/* Where update `i` of the chunk goes; -1 if its guard does not hold. */
static int64_t scatter_target(const OpPlan *p, int i) {
    const Value *v = p->op->out[0];
    if (p->op->guard && !p->guard_slot.lanes[i].i) return -1;
    int64_t at = 0;
    for (int dim = 0; dim < v->rank; dim++) {
        int64_t index = p->target_slot[dim].lanes[i].i;
        if (index < 0 || index >= v->shape[dim]) {
            fprintf(
                stderr,
                "mlcc: error[E9002]: interpreter: scatter%s%s: writes at index %lld in dimension "
                "%d, which has extent %lld\n",
                p->op->src ? " of " : "", p->op->src ? p->op->src : "", (long long)index, dim,
                (long long)v->shape[dim]);
            exit(ERR_BUG);
        }
        at = at * v->shape[dim] + index;
    }
    return at;
}

static void run_scatter(OpPlan *p, const void *const *in, void *out) {
    const Op *op = p->op;
    DType dt = op->out[0]->dt, reg = dt_reg(dt);
    if (value_bytes(op->out[0])) memmove(out, in[0], value_bytes(op->out[0]));
    for (int64_t first = 0; first < p->n_out; first += p->width) {
        int n = chunk_at(p, first, p->n_out);
        tape_move(&p->body, first, n);
        check_fault(p);
        for (int i = 0; i < n; i++) {
            int64_t at = scatter_target(p, i);
            if (at < 0) continue;
            Scalar value = p->body_slot.lanes[i];
            if (op->combine != COMBINE_none) {
                Scalar old = dt_load(dt, out, (size_t)at);
                value = settle(reg, combine_two(op->combine, reg, old, value));
                value = dt_cast(reg, dt, value);
            }
            dt_save(dt, out, (size_t)at, value);
        }
    }
}

void op_plan_run(OpPlan *p, const void *const *in, void *const *out, const int64_t *counters) {
    const Op *op = p->op;
    if (op->kind == OP_reshape) {
        if (value_bytes(op->out[0])) memmove(out[0], in[0], value_bytes(op->out[0]));
        return;
    }
    for (int i = 0; i < op->n_in; i++) p->sources[i].data = in[i];
    tape_start(&p->body, counters);
    tape_start(&p->post, counters);
    switch (op->kind) {
    case OP_map:
        run_map(p, out[0]);
        break;
    case OP_reduce:
        run_reduce(p, in, out[0]);
        break;
    case OP_scan:
        run_scan(p, out[0]);
        break;
    case OP_scatter:
        run_scatter(p, in, out[0]);
        break;
    default:
        break;
    }
}

void interp_op(Arena *arena, const Op *op, const void *const *in, void *const *out,
               const int64_t *counters) {
    /* Folding calls this for each of thousands of small operators: what a plan takes is given back
     * at once rather than kept in the arena. */
    (void)arena;
    Arena scratch;
    arena_init(&scratch, 0, NULL, NULL);
    op_plan_run(op_plan(&scratch, op), in, out, counters);
    arena_free(&scratch);
}
