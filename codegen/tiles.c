/* Products on a matrix unit; see cprint.h.
 *
 * A reduction loop of role tile, around rows and columns of accumulators and a sum of the few
 * products that the unit adds in a lane, becomes loads of tiles of rows and of columns, and the
 * products of each with each. The accumulators lie in an array; the reduction loops around are
 * printed as they are, and the array is loaded before the outermost and stored behind it.
 *
 * Intel's AMX; see tile_plan.h. Compiled for other processors, functions do the same.
 */
#include "codegen/clanes.h"
#include "codegen/codegen.h"
#include "ir/tile_plan.h"

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

/* Measured on a Xeon (Sapphire Rapids): the first store of a tile after 0.4 to 0.6 us without one
 * takes 0.3 us, in which nothing else goes on, as if that path had to be switched on again. So a
 * tile is stored now and then, after so many products. */
#define MOST_SILENT 32

struct TileNest {
    const Stmt *loop;                  /* of role tile */
    int64_t columns, depth;            /* the latter in words */
    int64_t stretch;                   /* rows of the inner of two loops over them */
    int outer, row, column;            /* variables; outer: -1 if there is but one loop of rows */
    int64_t row_stride, column_stride; /* bytes from a row of a tile to the next, in the operands */
    TilePlan plan;
    LaneDot dot;
    bool taken;             /* between begin_tiles and end_tiles */
    bool cleared;           /* the array was to be zeros: the unit begins with them */
    int64_t slots, at_once; /* in so many places of each step, so many parts of the tile before are
                               finished (later.c) */
    const char *silent;     /* name: steps since a tile was stored; NULL: there are few */
};

static int64_t bytes_of(const Expr *load) {
    return (int64_t)dt_store((DType)load->dt);
}

static bool is_loop(const Stmt *s, Role role) {
    return s && s->kind == ST_for && !s->next && s->role == role && ex_is_const(s->extent) &&
           s->extent->k.i >= 1 && s->extent->k.i <= TILE_REGISTERS * TILE_SIDE;
}

/* The index with the loops of the nest at their beginnings, but for these. */
static const Expr *placed(Printer *p, const TileNest *t, const Expr *index, int64_t row,
                          int64_t column) {
    const Expr **at = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    if (t->outer >= 0) at[t->outer] = ex_i(p->x, row / t->stretch);
    at[t->row] = ex_i(p->x, t->outer >= 0 ? row % t->stretch : row);
    at[t->column] = ex_i(p->x, column);
    at[t->loop->var] = at[t->dot.var] = ex_i(p->x, 0);
    index = ex_subst_vars(p->x, index, p->k->vars.n, at);
    return ex_simplify(p->x, index, p->k->vars.n, p->extent);
}

/* Divides rows and columns among the unit's registers. Rows of two loops are one stretch where they
 * lie at one stride. */
static bool plan_nest(TileNest *t, int64_t times) {
    const Expr *rows = t->dot.rows->arg[0];
    int64_t inner, outer = 0, extent = t->stretch;
    if (!ex_stride(rows, t->row, &inner)) return false;
    if (t->outer >= 0 && !ex_stride(rows, t->outer, &outer)) return false;
    t->row_stride = inner * bytes_of(t->dot.rows);
    if (outer == inner * t->stretch) {
        extent *= times;
        times = 1;
    }
    return tile_pieces(times, extent, 1, &t->plan.rows) &&
           tile_pieces(1, t->columns, TILE_SIDE, &t->plan.columns) && tile_plan(&t->plan);
}

static bool read_nest(Printer *p, const Stmt *s, TileNest *t) {
    if (s->kind != ST_for || s->role != ROLE_tile || !ex_is_const(s->extent)) return false;
    const Stmt *outer = NULL, *row = s->body, *column = row ? row->body : NULL;
    if (is_loop(column, ROLE_unroll)) {
        outer = row;
        row = column;
        column = row->body;
    }
    if ((outer && !is_loop(outer, ROLE_unroll)) || !is_loop(row, ROLE_unroll) ||
        !is_loop(column, ROLE_vector) || !column->body ||
        !lanes_read_dot(p, column->body, column->var, &t->dot) || t->dot.each ||
        t->dot.rows->dt == DT_i16)
        return false;
    *t = (TileNest){.loop = s,
                    .columns = column->extent->k.i,
                    .depth = s->extent->k.i,
                    .stretch = row->extent->k.i,
                    .outer = outer ? outer->var : -1,
                    .row = row->var,
                    .column = column->var,
                    .dot = t->dot};
    const Expr *rows = t->dot.rows->arg[0], *columns = t->dot.columns->arg[0];
    const Expr *sums = prepare(p, t->dot.store->index[0]);
    if (t->depth < 1 || t->depth > TILE_SIDE || !lanes_apart(sums, row->var, t->columns) ||
        (outer && !lanes_apart(sums, outer->var, t->columns * t->stretch)) ||
        !ex_is_const(placed(p, t, sums, 0, 0)) || !lanes_apart(rows, s->var, t->dot.count) ||
        ex_depends(columns, row->var) || (outer && ex_depends(columns, outer->var)) ||
        !ex_stride(columns, s->var, &t->column_stride))
        return false;
    t->column_stride *= bytes_of(t->dot.columns);
    return plan_nest(t, outer ? outer->extent->k.i : 1);
}

bool find_tiles(Printer *p, const Stmt *s) {
    TileNest t;
    if (p->tiles || !read_nest(p, s, &t)) return false;
    p->tiles = arena_copy(p->scratch, &t, sizeof t);
    p->held[t.dot.store->buffer] = -1;
    p->unit->needs |= NEEDS_tiles;
    return true;
}

static bool lies_in_tiles(const Printer *p, int buffer) {
    return p->tiles && p->tiles->dot.store->buffer == buffer;
}

/* The address of an element there. */
static const char *address(Printer *p, int buffer, const Expr *index, int64_t row, int64_t column) {
    index = placed(p, p->tiles, index, row, column);
    begin_statement(p, 1, &index);
    return print_address(p, buffer, index);
}

/* What is done with each tile of sums. */
static void print_sums(Printer *p, const char *macro) {
    const TileNest *t = p->tiles;
    const Stmt *store = t->dot.store;
    int64_t row = 0;
    for (int i = 0; i < t->plan.rows.n; row += t->plan.rows.extent[i++])
        for (int j = 0; j < t->plan.columns.n; j++) {
            int mark = p->named.n;
            const char *at =
                address(p, store->buffer, prepare(p, store->index[0]), row, TILE_SIDE * j);
            print_line(p, "%s(%d, %s, %lld);", macro, i * t->plan.columns.n + j, at,
                       (long long)t->columns * 4);
            end_statement(p, mark);
        }
}

/* A tile of rows or of columns. */
static void print_operand(Printer *p, int tile, const Expr *load, int64_t row, int64_t column,
                          int64_t stride) {
    int mark = p->named.n;
    const char *at = address(p, (int)load->k.i, load->arg[0], row, column);
    print_line(p, "MLCC_TILE_LOAD(%d, %s, %lld);", tile, at, (long long)stride);
    end_statement(p, mark);
}

static void print_row_tile(Printer *p, int i) {
    const TileNest *t = p->tiles;
    int64_t row = 0;
    for (int k = 0; k < i; k++) row += t->plan.rows.extent[k];
    print_operand(p, t->plan.rows.reg[i], t->dot.rows, row, 0, t->row_stride);
}

static void print_column_tile(Printer *p, int j) {
    const TileNest *t = p->tiles;
    print_operand(p, t->plan.columns.reg[j], t->dot.columns, 0, TILE_SIDE * j, t->column_stride);
}

/* Does the loop do nothing but the product and fetching ahead for it? */
static bool is_around(const Printer *p, const Stmt *s) {
    while (s && s != p->tiles->loop) {
        if (s->kind != ST_for) return false;
        s = s->body;
        while (s && s->kind == ST_prefetch) s = s->next;
        if (s && s->next) return false;
    }
    return s;
}

bool take_clearing(Printer *p, const Stmt *s) {
    if (!p->tiles || p->tiles->taken || !is_around(p, s->next)) return false;
    while (s->kind == ST_for && s->body && !s->body->next) s = s->body;
    bool clears =
        s->kind == ST_store && s->buffer == p->tiles->dot.store->buffer && ex_is_zero(s->value);
    p->tiles->cleared |= clears;
    return clears;
}

bool begin_tiles(Printer *p, const Stmt *s) {
    if (!p->tiles || p->tiles->taken || !is_around(p, s)) return false;
    int sums = p->tiles->plan.rows.n * p->tiles->plan.columns.n;
    for (int i = 0; i < sums && p->tiles->cleared; i++) print_line(p, "MLCC_TILE_CLEAR(%d);", i);
    if (!p->tiles->cleared) print_sums(p, "MLCC_TILE_TAKE");
    p->tiles->cleared = false;
    p->tiles->taken = true;
    return true;
}

/* How often the unit's loop runs for a tile; 0: that is not known. */
static int64_t count_steps(const TileNest *t, const Stmt *s) {
    int64_t steps = 1;
    while (s != t->loop) {
        if (s->kind == ST_for && !ex_is_const(s->extent)) return 0;
        if (s->kind == ST_for) steps *= s->extent->k.i;
        s = s->kind == ST_for ? s->body : s->next;
    }
    return steps;
}

/* The product in a list of statements. */
static const Stmt *find_product(const Printer *p, const Stmt *s) {
    for (; s; s = s->next) {
        if (is_around(p, s)) return s;
        const Stmt *found = s->kind == ST_for ? find_product(p, s->body) : NULL;
        if (found) return found;
    }
    return NULL;
}

bool print_sums_alloc(Printer *p, int buffer) {
    if (!lies_in_tiles(p, buffer)) return false;
    const Buffer *b = p->k->buffers.items[buffer];
    if (!print_later_alloc(p, buffer))
        print_line(p, "__attribute__((aligned(64))) %s %s[%lld];", mem_type(p->unit, b->dt),
                   p->buffer[buffer], (long long)buffer_elements(b));
    return true;
}

/* Steps after which a tile is stored. */
static int64_t most_silent(const TileNest *t) {
    return MOST_SILENT / (t->plan.rows.n * t->plan.columns.n);
}

static void print_product(Printer *p, int i, int j, int64_t *slots) {
    const TileNest *t = p->tiles;
    print_line(p, "MLCC_TILE_%s(%d, %d, %d);", t->dot.count == 4 ? "BYTES" : "BF16",
               i * t->plan.columns.n + j, t->plan.rows.reg[i], t->plan.columns.reg[j]);
    if ((*slots)-- > 0) print_parts(p, t->at_once);
}

bool print_tiles(Printer *p, const Stmt *s) {
    const TileNest *t = p->tiles;
    if (!t || s != t->loop) return false;
    const int rows = t->plan.rows.n, columns = t->plan.columns.n;
    const bool rows_stay = rows <= columns;
    int64_t slots = t->slots;
    for (int i = 0; i < rows && rows_stay; i++) print_row_tile(p, i);
    for (int j = 0; j < columns; j++) {
        print_column_tile(p, j);
        for (int i = 0; i < rows && rows_stay; i++) print_product(p, i, j, &slots);
    }
    for (int i = 0; i < rows && !rows_stay; i++) {
        print_row_tile(p, i);
        for (int j = 0; j < columns; j++) print_product(p, i, j, &slots);
    }
    if (t->silent) {
        print_line(p, "if (++%s == %lld) {", t->silent, (long long)most_silent(t));
        print_line(p, "    MLCC_TILE_WAKE(%d);", t->plan.columns.reg[0]);
        print_line(p, "    %s = 0;", t->silent);
        print_line(p, "}");
    }
    return true;
}

void end_tiles(Printer *p) {
    print_sums(p, "MLCC_TILE_GIVE");
    p->tiles->taken = false;
}

/* A row's bytes, and rows. */
static void add_shape(Text *out, int tile, int rows, int words) {
    text_addf(out, ", [%d] = %d, [%d] = %d", 16 + 2 * tile, 4 * words, 48 + tile, rows);
}

/* Of each register that holds some of the pieces. */
static void add_shapes(Text *out, const TilePieces *pieces, const TileNest *t, bool rows) {
    for (int i = 0; i < pieces->n; i++)
        if (pieces->reg[i] == pieces->reg[0] + i) /* else it is one of those before */
            add_shape(out, pieces->reg[i], rows ? pieces->extent[i] : (int)t->depth,
                      rows ? (int)t->depth : pieces->extent[i]);
}

/* What the unit is to be told. */
void print_tiles_begin(Printer *p) {
    const TileNest *t = p->tiles;
    if (!t) return;
    Text out = text_new(p->scratch);
    const TilePieces *rows = &t->plan.rows, *columns = &t->plan.columns;
    for (int i = 0; i < rows->n; i++)
        for (int j = 0; j < columns->n; j++)
            add_shape(&out, i * columns->n + j, rows->extent[i], columns->extent[j]);
    add_shapes(&out, rows, t, true);
    add_shapes(&out, columns, t, false);
    print_line(p, "static const unsigned char shapes[64] = {1%s};", text_get(&out));
    print_line(p, "MLCC_TILES_BEGIN(shapes);");
    const Stmt *product = find_product(p, p->k->body);
    const int64_t steps = product ? count_steps(t, product) : 0;
    if (steps == 0 || steps > 2 * most_silent(t)) {
        p->tiles->silent = names_take(&p->names, "silent", "v");
        print_line(p, "int %s = 0; /* steps since a tile was stored */", t->silent);
    }
    if (steps == 0 || !find_later(p, product, t->dot.store->buffer)) return;
    const int64_t parts = later_parts(p), products = t->plan.rows.n * t->plan.columns.n;
    p->tiles->slots = (parts + steps - 1) / steps;
    if (t->slots > products) p->tiles->slots = products;
    p->tiles->at_once = (parts + steps * t->slots - 1) / (steps * t->slots);
}

void print_tiles_end(Printer *p) {
    if (p->tiles) print_line(p, "MLCC_TILES_END();");
}

const char may_tile_text[] =
    "/* Linux gives a program the unit when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, "
    "tile data). */\n"
    "static inline int mlcc_may_tile(void) {\n"
    "#if defined(__linux__)\n"
    "    long result = 158;\n"
    "    __asm__ volatile(\"syscall\"\n"
    "                     : \"+a\"(result)\n"
    "                     : \"D\"(0x1023L), \"S\"(18L)\n"
    "                     : \"rcx\", \"r11\", \"memory\");\n"
    "    return result == 0;\n"
    "#else\n"
    "    return 1;\n"
    "#endif\n"
    "}\n";

void print_tile_functions(const Unit *unit, Text *out) {
    if (!(unit->needs & NEEDS_tiles)) return;
    text_add(out,
             "#if defined(__AMXTILE__) /* as clang has named them */\n"
             "#define __AMX_TILE__ 1\n"
             "#define __AMX_INT8__ __AMXINT8__\n"
             "#define __AMX_BF16__ __AMXBF16__\n"
             "#endif\n"
             "#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)\n"
             "#include <immintrin.h>\n\n"
             "/* Compilers do not know what the instructions read. */\n"
             "#define MLCC_IN_MEMORY(p) __asm__ volatile(\"\" : : \"r\"(p) : \"memory\")\n"
             "#define MLCC_TILES_BEGIN(shapes) _tile_loadconfig(shapes)\n"
             "#define MLCC_TILES_END() _tile_release()\n"
             "#define MLCC_TILE_CLEAR(t) _tile_zero(t)\n"
             "#define MLCC_TILE_TAKE(t, at, stride) \\\n"
             "    do { \\\n"
             "        MLCC_IN_MEMORY(at); \\\n"
             "        _tile_loadd(t, at, stride); \\\n"
             "    } while (0)\n"
             "#define MLCC_TILE_GIVE(t, at, stride) \\\n"
             "    do { \\\n"
             "        _tile_stored(t, at, stride); \\\n"
             "        MLCC_IN_MEMORY(at); \\\n"
             "    } while (0)\n"
             "/* Keeps tile stores fast: after a while without one the next takes long. */\n"
             "#define MLCC_TILE_WAKE(t) \\\n"
             "    do { \\\n"
             "        __attribute__((aligned(64))) unsigned char nothing[64]; \\\n"
             "        _tile_stored(t, nothing, 0); \\\n"
             "    } while (0)\n"
             "#define MLCC_TILE_LOAD(t, at, stride) _tile_loadd(t, at, stride)\n"
             "#define MLCC_TILE_BYTES(sum, rows, columns) _tile_dpbusd(sum, rows, columns)\n"
             "#define MLCC_TILE_BF16(sum, rows, columns) _tile_dpbf16ps(sum, rows, columns)\n\n");
    text_add(out, may_tile_text);
    text_add(out, "#else\n");
    text_add(
        out,
        "typedef struct mlcc_tiles {\n"
        "    const unsigned char *shape; /* of tile t: 16 + 2 t bytes of a row, 48 + t rows */\n"
        "    union {\n"
        "        unsigned char byte[64];\n"
        "        uint16_t half[32];\n"
        "        uint32_t word[16];\n"
        "        float real[16];\n"
        "    } row[8][16];\n"
        "} mlcc_tiles;\n\n"
        "static inline void mlcc_tile_clear(mlcc_tiles *m, int t) {\n"
        "    for (int i = 0; i < 256; i++) m->row[t][i / 16].word[i % 16] = 0;\n"
        "}\n\n"
        "static inline void mlcc_tile_load(mlcc_tiles *m, int t, const void *at, int stride) {\n"
        "    for (int r = 0; r < m->shape[48 + t]; r++)\n"
        "        for (int i = 0; i < m->shape[16 + 2 * t]; i++)\n"
        "            m->row[t][r].byte[i] = ((const unsigned char *)at)[r * (long)stride + i];\n"
        "}\n\n"
        "static inline void mlcc_tile_give(const mlcc_tiles *m, int t, void *at, int stride) {\n"
        "    for (int r = 0; r < m->shape[48 + t]; r++)\n"
        "        for (int i = 0; i < m->shape[16 + 2 * t]; i++)\n"
        "            ((unsigned char *)at)[r * (long)stride + i] = m->row[t][r].byte[i];\n"
        "}\n\n"
        "static inline float mlcc_tile_bf16(uint16_t half) {\n"
        "    const union {\n"
        "        uint32_t word;\n"
        "        float real;\n"
        "    } u = {(uint32_t)half << 16};\n"
        "    return u.real;\n"
        "}\n\n"
        "static inline void mlcc_tile_products(mlcc_tiles *m, int sum, int rows, int columns,\n"
        "                                      int bytes) {\n"
        "    for (int r = 0; r < m->shape[48 + sum]; r++)\n"
        "        for (int k = 0; k < m->shape[48 + columns]; k++)\n"
        "            for (int c = 0; c < m->shape[16 + 2 * sum] / 4; c++)\n"
        "                for (int i = 0; i < (bytes ? 4 : 2); i++)\n"
        "                    if (bytes)\n"
        "                        m->row[sum][r].word[c] +=\n"
        "                            (uint32_t)(m->row[rows][r].byte[4 * k + i] *\n"
        "                                       (signed char)m->row[columns][k].byte[4 * c + i]);\n"
        "                    else\n"
        "                        m->row[sum][r].real[c] +=\n"
        "                            mlcc_tile_bf16(m->row[rows][r].half[2 * k + i]) *\n"
        "                            mlcc_tile_bf16(m->row[columns][k].half[2 * c + i]);\n"
        "}\n\n"
        "#define MLCC_TILES_BEGIN(shapes) \\\n"
        "    mlcc_tiles tiles; \\\n"
        "    tiles.shape = shapes\n"
        "#define MLCC_TILES_END() ((void)0)\n"
        "#define MLCC_TILE_CLEAR(t) mlcc_tile_clear(&tiles, t)\n"
        "#define MLCC_TILE_TAKE(t, at, stride) mlcc_tile_load(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_GIVE(t, at, stride) mlcc_tile_give(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_WAKE(t) ((void)0)\n"
        "#define MLCC_TILE_LOAD(t, at, stride) mlcc_tile_load(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_BYTES(sum, a, b) mlcc_tile_products(&tiles, sum, a, b, 1)\n"
        "#define MLCC_TILE_BF16(sum, a, b) mlcc_tile_products(&tiles, sum, a, b, 0)\n"
        "#define mlcc_may_tile() 1\n"
        "#endif\n\n");
}
