/* Ranges of integer values, from the extents of loops and the types of loads; see cprint.h. */
#include "codegen/cexpr.h"

#define RANGE_LIMIT ((int64_t)1 << 40)

void type_range(Node *node, DType dt) {
    int bits = dt_bits(dt);
    DKind kind = dt_kind(dt);
    node->bounded = bits <= 32 && kind != DK_float;
    if (!node->bounded) return;
    node->lo = kind == DK_sint ? -((int64_t)1 << (bits - 1)) : 0;
    node->hi = kind == DK_sint ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static bool product_range(const Node *a, const Node *b, int64_t *lo, int64_t *hi) {
    const int64_t limit = (int64_t)1 << 31;
    if (a->lo < -limit || a->hi > limit || b->lo < -limit || b->hi > limit) return false;
    int64_t p = a->lo * b->lo, q = a->lo * b->hi, r = a->hi * b->lo, s = a->hi * b->hi;
    *lo = least(least(p, q), least(r, s));
    *hi = most(most(p, q), most(r, s));
    return true;
}

static bool division_range(const Node *a, const Node *b, bool remainder, int64_t *lo, int64_t *hi) {
    if (b->lo <= 0) return false;
    int64_t last = b->hi - 1;
    if (remainder) {
        *lo = a->lo >= 0 ? 0 : most(a->lo, -last);
        *hi = a->hi <= 0 ? 0 : least(a->hi, last);
    } else {
        *lo = a->lo >= 0 ? a->lo / b->hi : a->lo / b->lo;
        *hi = a->hi >= 0 ? a->hi / b->lo : a->hi / b->hi;
    }
    return true;
}

bool exact_range(Printer *p, const Expr *e, int64_t *lo, int64_t *hi) {
    const Node *a = range_of(p, e->arg[0]), *b = range_of(p, e->arg[1]);
    if (!a->bounded || !b->bounded) return false;
    switch ((ExprOp)e->op) {
    case EX_add:
        *lo = a->lo + b->lo, *hi = a->hi + b->hi;
        break;
    case EX_sub:
        *lo = a->lo - b->hi, *hi = a->hi - b->lo;
        break;
    case EX_mul:
        if (!product_range(a, b, lo, hi)) return false;
        break;
    case EX_min:
        *lo = least(a->lo, b->lo), *hi = least(a->hi, b->hi);
        break;
    case EX_max:
        *lo = most(a->lo, b->lo), *hi = most(a->hi, b->hi);
        break;
    case EX_div:
    case EX_rem:
        if (!division_range(a, b, e->op == EX_rem, lo, hi)) return false;
        break;
    case EX_band: /* not more than an operand that is not negative */
        if (a->lo < 0 && b->lo < 0) return false;
        *lo = 0, *hi = a->lo < 0 ? b->hi : b->lo < 0 ? a->hi : least(a->hi, b->hi);
        break;
    default:
        return false;
    }
    return *lo >= -RANGE_LIMIT && *hi <= RANGE_LIMIT;
}

/* Sets the range, unless the type holds less: then the value may wrap. */
static void narrow_range(Node *node, int64_t lo, int64_t hi) {
    if (node->bounded && (lo < node->lo || hi > node->hi)) return;
    node->bounded = true;
    node->lo = lo;
    node->hi = hi;
}

static void find_range(Printer *p, Node *node) {
    const Expr *e = node->e;
    const Node *from = NULL, *other = NULL;
    int64_t lo, hi;
    switch ((ExprOp)e->op) {
    case EX_const:
        if (e->k.i > -RANGE_LIMIT && e->k.i < RANGE_LIMIT) narrow_range(node, e->k.i, e->k.i);
        return;
    case EX_var:
        from = p->var_value[e->k.i];
        if (p->extent[e->k.i] > 0) narrow_range(node, 0, p->extent[e->k.i] - 1);
        break;
    case EX_load: {
        const Buffer *b = p->k->buffers.items[e->k.i];
        if (b->high < (double)RANGE_LIMIT && b->low > -(double)RANGE_LIMIT)
            narrow_range(node, (int64_t)b->low, (int64_t)b->high);
        return;
    }
    case EX_ctr:
        narrow_range(node, 0, p->trips[e->k.i] > 0 ? p->trips[e->k.i] - 1 : 0);
        return;
    case EX_cast:
        from = range_of(p, e->arg[0]);
        if (dt_is_float((DType)e->arg[0]->dt)) return;
        break;
    case EX_select:
        from = range_of(p, e->arg[1]), other = range_of(p, e->arg[2]);
        break;
    default:
        if (e->n == 2 && exact_range(p, e, &lo, &hi)) narrow_range(node, lo, hi);
        return;
    }
    if (!from || !from->bounded || (other && !other->bounded)) return;
    lo = other ? least(from->lo, other->lo) : from->lo;
    hi = other ? most(from->hi, other->hi) : from->hi;
    narrow_range(node, lo, hi);
}

const Node *range_of(Printer *p, const Expr *e) {
    Node *node = node_of(p, e);
    if (node->ranged) return node;
    node->ranged = true;
    type_range(node, (DType)e->dt);
    if (!dt_is_float((DType)e->dt)) find_range(p, node);
    return node;
}

static bool find_inside(Printer *p, const Expr *e) {
    if (e->op == EX_load && e->n == 1) {
        const Node *at = range_of(p, e->arg[0]);
        const Buffer *b = p->k->buffers.items[e->k.i];
        if (b->partial) return false;
        if (!at->bounded || at->lo < 0 || at->hi >= shape_numel(b->rank, b->shape)) return false;
    }
    for (int i = 0; i < e->n; i++)
        if (!loads_inside(p, e->arg[i])) return false;
    return true;
}

bool loads_inside(Printer *p, const Expr *e) {
    if (!e->loads) return true;
    Node *node = node_of(p, e);
    if (!node->asked) node->inside = find_inside(p, e);
    node->asked = true;
    return node->inside;
}
