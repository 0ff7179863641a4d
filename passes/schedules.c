/* See schedules.h. */
#include "passes/schedules.h"

#include "ir/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "mlcc schedules 1"
#define KEY_DIGITS 16

/* --- keys ------------------------------------------------------------------------------------- */

/* What of a value its reader or writer sees: type, shape, where its elements lie. */
static void add_value(Text *text, const Value *v) {
    text_addf(text, "%s%s gap %d%s", dt_name(v->dt), shape_text(text->arena, v->rank, v->shape),
              v->gap, value_is_const(v) ? " const" : "");
    for (; v->inside; v = v->inside)
        text_addf(text, " at %s in %s gap %d", shape_text(text->arena, v->rank, v->origin),
                  shape_text(text->arena, v->inside->rank, v->inside->shape), v->inside->gap);
    text_add(text, "\n");
}

static void add_target(Text *text, const Target *t) {
    text_addf(text, "%s %d x %d, types %d, bytes %d %d %d, bf16 %d, tiles %d\n", t->name,
              t->vector_registers, t->vector_bytes, t->vector_types, t->byte_products,
              t->byte_pairs, t->byte_dots, t->bf16_products, t->matrix_tiles);
    if (t->signed_rows) text_add(text, "signed rows\n");
    if (t->scalar_registers)
        text_addf(text, "scalars %d, soft floats %d\n", t->scalar_registers, t->soft_floats);
}

uint64_t schedule_key(Arena *arena, const Op *op, const Target *t) {
    if (op->kind != OP_reduce || t->blocks) return 0;
    Text text = text_new(arena);
    add_target(&text, t);
    text_addf(&text, "%s %s\n", combine_name(op->combine), shape_text(arena, op->n_red, op->red));
    for (int i = 0; i < op->n_in; i++) add_value(&text, op->in[i]);
    add_value(&text, op->out[0]);
    ExprScope body = op_scope(op, false, 0), post = op_scope(op, true, 0);
    text_expr(&text, &body, op->body, 0);
    text_add(&text, "\n");
    text_expr(&text, &post, op->post, 0);
    uint64_t key = fnv1a(text_get(&text), text.length, FNV_SEED);
    return key ? key : 1;
}

/* --- the table -------------------------------------------------------------------------------- */

/* How many entries have a smaller key. */
static int place_of(const Schedules *s, uint64_t key) {
    int low = 0, high = s->entries.n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->entries.items[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int schedules_find(const Schedules *s, uint64_t key) {
    int at = place_of(s, key);
    return at < s->entries.n && s->entries.items[at].key == key ? at : -1;
}

bool schedules_add(Arena *arena, Schedules *s, ScheduleEntry entry) {
    if (schedules_find(s, entry.key) >= 0) return false;
    int at = place_of(s, entry.key);
    vec_push(arena, &s->entries, entry);
    ScheduleEntry *items = s->entries.items;
    memmove(&items[at + 1], &items[at], (size_t)(s->entries.n - 1 - at) * sizeof entry);
    items[at] = entry;
    return true;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Reads "KEY STEPS"; NULL, or what is wrong with it. */
static const char *read_entry(Arena *arena, char *text, int line, Schedules *s) {
    size_t digits = strspn(text, "0123456789abcdef");
    if (digits != KEY_DIGITS || text[digits] != ' ')
        return "expected an operator's key, 16 hexadecimal digits, and its steps";
    const char *steps = text + digits + strspn(text + digits, " ");
    if (!*steps) return "there are no steps";
    ScheduleEntry entry = {strtoull(text, NULL, 16), steps, NULL, line};
    return schedules_add(arena, s, entry) ? NULL : "a second entry of this operator";
}

bool schedules_read(Arena *arena, Diag *diag, const char *text, size_t length, Schedules *s) {
    if (memchr(text, 0, length)) {
        diag_error(diag, E5003, "'%s' is no text", s->file);
        return false;
    }
    char *copy = arena_strndup(arena, text, length), *rest = copy;
    for (int line = 1; rest; line++) {
        char *at = rest, *end = strchr(rest, '\n');
        rest = end ? end + 1 : NULL;
        if (!end) end = at + strlen(at);
        while (end > at && isspace((unsigned char)end[-1])) end--;
        *end = 0;
        if (line == 1 && strcmp(at, FIRST_LINE) != 0) {
            diag_error(diag, E5003, "'%s' does not begin with the line '" FIRST_LINE "'", s->file);
            return false;
        }
        if (line == 1 || *at == 0 || *at == '#') continue;
        const char *wrong = read_entry(arena, at, line, s);
        if (!wrong) continue;
        diag_error(diag, E5003, "'%s', line %d: %s", s->file, line, wrong);
        return false;
    }
    return true;
}

void schedules_print(Text *out, const Schedules *s) {
    text_add(out, FIRST_LINE "\n");
    if (s->comment) text_addf(out, "# %s\n", s->comment);
    for (int i = 0; i < s->entries.n; i++) {
        const ScheduleEntry *e = &s->entries.items[i];
        if (e->comment) text_addf(out, "# %s\n", e->comment);
        size_t length = strlen(e->steps);
        while (length && e->steps[length - 1] == ' ') length--;
        text_addf(out, "%016" PRIx64 " %.*s\n", e->key, (int)length, e->steps);
    }
}
