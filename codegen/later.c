/* What follows a product, a tile later; see cprint.h.
 *
 * What multiplies and what computes functions of sums work at once if their instructions are near
 * each other, and a processor looks ahead only so far. So the sums of a tile go to an array, where
 * parts of them are finished while those of the next tile are added up.
 */
#include "codegen/clanes.h"

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

struct Later {
    const Stmt *finish; /* a loop of role later over parts of the sums */
    int sums;           /* the buffer */
    bool unit;          /* of a matrix unit's: two arrays take turns, it works in one of them */
    const Stmt *loop;   /* of a product of vectors: so many parts stand before each group of its
                           iterations */
    int64_t groups, at_once;
    bool unsure;              /* some parts may be left behind the product */
    const char *first, *last; /* of the iterations of a group; NULL: outside of it */
    VEC(int) around;          /* variables around the product that the parts read */
    /* Names: of the sums, which of two arrays is at work, the group, and how many parts have been
     * finished in this place. */
    const char *array, *turn, *group, *count;
    const char **at_before; /* each variable around at the tile before */
};

static bool mentions_var(const Stmt *s, int var) {
    for (; s; s = s->next) {
        if ((s->extent && ex_depends(s->extent, var)) || (s->value && ex_depends(s->value, var)))
            return true;
        if (s->index && ex_depends(s->index[0], var)) return true;
        if (mentions_var(s->body, var) || mentions_var(s->other, var)) return true;
    }
    return false;
}

/* Finds the loop over parts in a list of statements, and the one before it, which is returned; the
 * variables around go to `around`. */
static const Stmt *find_parts(Printer *p, Later *l, const Stmt *s) {
    const int mark = l->around.n;
    for (; s; s = s->next) {
        const Stmt *next = s->next;
        if (next && !next->next && next->kind == ST_for && next->role == ROLE_later) {
            l->finish = next;
            return s;
        }
        if (s->kind == ST_let) vec_push(p->scratch, &l->around, s->var);
        if (s->kind != ST_for) continue;
        const int inside = l->around.n;
        if (!ex_is_const(s->extent) || s->extent->k.i > 1) vec_push(p->scratch, &l->around, s->var);
        const Stmt *found = find_parts(p, l, s->body);
        if (found) return found;
        l->around.n = inside;
    }
    l->around.n = mark;
    return NULL;
}

typedef struct SumsRead {
    const Printer *p;
    int sums; /* -1: none, -2: several */
} SumsRead;

static void find_sums(void *user, const Expr *e) {
    SumsRead *u = user;
    if (e->op != EX_load || u->p->held[e->k.i] <= 0 || u->sums == (int)e->k.i) return;
    u->sums = u->sums == -1 ? (int)e->k.i : -2;
}

static void find_sums_in(SumsRead *u, const Stmt *s) {
    for (; s; s = s->next) {
        if (s->value) ex_visit(u->p->scratch, s->value, find_sums, u);
        find_sums_in(u, s->body);
    }
}

/* The loop of a product of vectors before whose iterations the parts stand: the outermost that has
 * room for all of them, one before each group, or else the innermost, several before each
 * iteration. Loops around it may run less often than they say. False: there is none. */
static bool find_groups(Later *l, const Stmt *product) {
    const int64_t parts = l->finish->extent->k.i;
    int64_t around = 1, places = 0;
    for (const Stmt *s = product; places < parts; s = s->body) {
        while (s && s->kind == ST_prefetch) s = s->next;
        if (!s || s->kind != ST_for || s->role != ROLE_serial || (s->next && s != product)) break;
        if (!ex_is_const(s->extent)) {
            l->unsure = true;
            continue;
        }
        const int64_t extent = s->extent->k.i;
        l->loop = s;
        for (l->groups = 1; l->groups < extent; l->groups++)
            if (extent % l->groups == 0 && around * l->groups >= parts) break;
        places = around * l->groups;
        around *= extent;
    }
    if (l->loop) l->at_once = (parts + places - 1) / places;
    return l->loop;
}

bool find_later(Printer *p, const Stmt *unit, int unit_sums) {
    Later l = {.sums = unit_sums, .unit = unit != NULL};
    const Stmt *product = p->k->body->next ? NULL : find_parts(p, &l, p->k->body);
    if (!product || (unit && product != unit) || l.around.n == 0 || product->kind != ST_for ||
        !ex_is_const(l.finish->extent))
        return false;
    int n = 0;
    for (int i = 0; i < l.around.n; i++) {
        int var = l.around.items[i];
        if (p->k->vars.items[var].dt != DT_i32) return false;
        if (mentions_var(l.finish, var)) l.around.items[n++] = var;
    }
    l.around.n = n;
    if (!unit) {
        SumsRead u = {p, -1};
        find_sums_in(&u, l.finish);
        l.sums = u.sums;
        if (l.sums < 0 || !find_groups(&l, product)) return false;
    }
    l.array = names_take(&p->names, "sums", "v");
    if (unit) l.turn = names_take(&p->names, "turn", "v");
    if (l.groups > 1) l.group = names_take(&p->names, "group", "v");
    if (unit || l.at_once > 1) l.count = names_take(&p->names, "n", "v");
    l.at_before = ARENA_ARRAY(p->scratch, n + 1, const char *);
    for (int i = 0; i < n; i++)
        l.at_before[i] = names_take(&p->names, TEXT("%s_before", p->var[l.around.items[i]]), "v");
    p->later = arena_copy(p->scratch, &l, sizeof l);
    return true;
}

int64_t later_parts(const Printer *p) {
    return p->later ? p->later->finish->extent->k.i : 0;
}

/* Exchanges the names of the tile at work with those of the tile before. */
static void turn_back(Printer *p) {
    const Later *l = p->later;
    for (int i = 0; i < l->around.n; i++) {
        const char **var = &p->var[l->around.items[i]], *name = *var;
        *var = l->at_before[i];
        l->at_before[i] = name;
    }
}

void print_parts(Printer *p, int64_t count) {
    const Later *l = p->later;
    const int n_named = p->named.n;
    const char *done = p->var[l->finish->var], *at_work = p->buffer[l->sums];
    const long long parts = (long long)later_parts(p);
    Node **named = arena_copy(p->scratch, p->named.items, (size_t)n_named * sizeof *named);
    const char **name = ARENA_ARRAY(p->scratch, n_named + 1, const char *);
    for (int i = 0; i < n_named; i++) { /* they are those of the tile at work */
        name[i] = named[i]->name;
        named[i]->name = NULL;
    }
    p->named.n = 0;
    if (count == 1)
        print_line(p, "if (%s < %lld) {", done, parts);
    else if (count)
        print_line(p, "for (int %s = 0; %s < %lld && %s < %lld; %s++) {", l->count, l->count,
                   (long long)count, done, parts, l->count);
    else
        print_line(p, "while (%s < %lld) {", done, parts);
    p->indent++;
    turn_back(p);
    /* beside vectors of sums there are no registers for what GCC computes of the place ahead */
    for (int i = 0; i < l->around.n && !l->unit; i++) {
        p->unit->needs |= NEEDS_fresh;
        print_line(p, "MLCC_FRESH(%s);", p->var[l->around.items[i]]);
    }
    const int64_t held = p->held[l->sums];
    p->held[l->sums] = -1;
    p->buffer[l->sums] = l->unit ? TEXT("%s[!%s]", l->array, l->turn) : l->array;
    print_statements(p, l->finish->body);
    p->buffer[l->sums] = at_work;
    p->held[l->sums] = held;
    turn_back(p);
    print_line(p, "%s++;", done);
    p->indent--;
    print_line(p, "}");
    end_scope(p, 0);
    for (int i = 0; i < n_named; i++) {
        named[i]->name = name[i];
        vec_push(p->scratch, &p->named, named[i]);
    }
}

bool print_later(Printer *p, const Stmt *s) {
    const Later *l = p->later;
    if (!l || s != l->finish) return false;
    if (l->unsure) print_parts(p, 0);
    if (l->unit)
        print_line(p, "%s = !%s;", l->turn, l->turn);
    else
        store_held(p, l->sums, l->array);
    for (int i = 0; i < l->around.n; i++)
        print_line(p, "%s = %s;", l->at_before[i], p->var[l->around.items[i]]);
    print_line(p, "%s = 0;", p->var[s->var]);
    return true;
}

bool print_later_alloc(Printer *p, int buffer) {
    const Later *l = p->later;
    if (!l || !l->unit || buffer != l->sums) return false;
    print_line(p, "%s *const %s = %s[%s];", mem_type(p->unit, p->k->buffers.items[buffer]->dt),
               p->buffer[buffer], l->array, l->turn);
    return true;
}

bool print_groups(Printer *p, const Stmt *s) {
    Later *l = p->later;
    if (!l || s != l->loop || l->first) return false;
    const int64_t each = s->extent->k.i / l->groups;
    if (l->groups == 1) {
        print_parts(p, l->at_once);
        print_stay(p);
        l->first = "0";
        l->last = TEXT("%lld", (long long)each);
        print_loop(p, s);
        l->first = l->last = NULL;
        return true;
    }
    const char *group = each > 1 ? l->group : p->var[s->var], *type = index_type(p);
    if (each == 1) print_rolled(p, s);
    print_line(p, "for (%s %s = 0; %s < %lld; %s++) {", type, group, group, (long long)l->groups,
               group);
    p->indent++;
    print_parts(p, l->at_once);
    print_stay(p);
    if (each > 1) {
        l->first = TEXT("%s * %lld", group, (long long)each);
        l->last = TEXT("(%s + 1) * %lld", group, (long long)each);
        print_loop(p, s);
        l->first = l->last = NULL;
    } else {
        print_statements(p, s->body);
    }
    p->indent--;
    print_line(p, "}");
    return true;
}

void group_bounds(const Printer *p, const Stmt *s, const char **first, const char **last) {
    const Later *l = p->later;
    if (!l || s != l->loop || !l->first) return;
    *first = l->first;
    *last = l->last;
}

void print_later_begin(Printer *p) {
    const Later *l = p->later;
    if (!l) return;
    const Buffer *sums = p->k->buffers.items[l->sums];
    print_line(p, "__attribute__((aligned(64))) %s %s%s[%lld]%s;", mem_type(p->unit, sums->dt),
               l->array, l->unit ? "[2]" : "", (long long)(buffer_elements(sums) + 15) / 16 * 16,
               l->unit ? "" : " = {0}");
    if (l->unit) print_line(p, "int %s = 0;", l->turn);
    for (int i = 0; i < l->around.n; i++)
        print_line(p, "%s %s = 0;", index_type(p), l->at_before[i]);
    print_line(p, "%s %s = %lld; /* parts of the tile before that are finished */", index_type(p),
               p->var[l->finish->var], (long long)later_parts(p));
}

void print_later_end(Printer *p) {
    if (p->later) print_parts(p, 0);
}
