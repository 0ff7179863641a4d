/* Products on a matrix unit; see cprint.h.
 *
 * A reduction loop of role tile, around rows and columns of accumulators and a sum of the few
 * products that the unit adds in a lane, becomes loads of at most two tiles of rows and two of
 * columns, and the products of each with each. The accumulators lie in an array; the reduction
 * loops around are printed as they are, and the array is loaded before the outermost and stored
 * behind it.
 *
 * Intel's AMX (Software Developer's Manual, volume 1, chapter 18): eight tiles of 16 rows of 64
 * bytes. Compiled for other processors, functions do the same.
 */
#include "codegen/clanes.h"
#include "codegen/codegen.h"

#define TEXT(...) arena_printf(p->scratch, __VA_ARGS__)

struct TileNest {
    const Stmt *loop;                  /* of role tile */
    int64_t rows, columns, depth;      /* the latter in words */
    int row, column;                   /* variables */
    int64_t row_stride, column_stride; /* bytes from a row of a tile to the next, in the operands */
    LaneDot dot;
    bool taken;   /* between begin_tiles and end_tiles */
    bool cleared; /* the array was to be zeros: the unit begins with them */
};

static int64_t bytes_of(const Expr *load) {
    return (int64_t)dt_store((DType)load->dt);
}

static bool is_loop(const Stmt *s, Role role, int64_t most) {
    return s && s->kind == ST_for && !s->next && s->role == role && ex_is_const(s->extent) &&
           s->extent->k.i >= 1 && s->extent->k.i <= most;
}

/* The index with the loops of the nest at their beginnings, but for these. */
static const Expr *placed(Printer *p, const TileNest *t, const Expr *index, int64_t row,
                          int64_t column) {
    const Expr **at = ARENA_ARRAY(p->scratch, p->k->vars.n + 1, const Expr *);
    at[t->row] = ex_i(p->x, row);
    at[t->column] = ex_i(p->x, column);
    at[t->loop->var] = at[t->dot.var] = ex_i(p->x, 0);
    index = ex_subst_vars(p->x, index, p->k->vars.n, at);
    return ex_simplify(p->x, index, p->k->vars.n, p->extent);
}

static bool read_nest(Printer *p, const Stmt *s, TileNest *t) {
    if (s->kind != ST_for || s->role != ROLE_tile || !ex_is_const(s->extent)) return false;
    const Stmt *row = s->body, *column = row ? row->body : NULL;
    if (!is_loop(row, ROLE_unroll, 2 * TILE_SIDE) || !is_loop(column, ROLE_vector, 2 * TILE_SIDE) ||
        !column->body || !lanes_read_dot(p, column->body, column->var, &t->dot) || t->dot.each ||
        t->dot.rows->dt == DT_i16)
        return false;
    *t = (TileNest){.loop = s,
                    .rows = row->extent->k.i,
                    .columns = column->extent->k.i,
                    .depth = s->extent->k.i,
                    .row = row->var,
                    .column = column->var,
                    .dot = t->dot};
    const Expr *rows = t->dot.rows->arg[0], *columns = t->dot.columns->arg[0];
    const Expr *sums = prepare(p, t->dot.store->index[0]);
    if (t->depth < 1 || t->depth > TILE_SIDE || !lanes_apart(sums, row->var, t->columns) ||
        !ex_is_const(placed(p, t, sums, 0, 0)) || !lanes_apart(rows, s->var, t->dot.count) ||
        !ex_stride(rows, row->var, &t->row_stride) || lanes_vary(columns, row->var) ||
        !ex_stride(columns, s->var, &t->column_stride))
        return false;
    t->row_stride *= bytes_of(t->dot.rows);
    t->column_stride *= bytes_of(t->dot.columns);
    return true;
}

bool find_tiles(Printer *p, const Stmt *s) {
    TileNest t;
    if (p->tiles || !read_nest(p, s, &t)) return false;
    p->tiles = arena_copy(p->scratch, &t, sizeof t);
    p->held[t.dot.store->buffer] = -1;
    p->unit->needs |= NEEDS_tiles;
    return true;
}

bool lies_in_tiles(const Printer *p, int buffer) {
    return p->tiles && p->tiles->dot.store->buffer == buffer;
}

/* The address of an element there. */
static const char *address(Printer *p, int buffer, const Expr *index, int64_t row, int64_t column) {
    index = placed(p, p->tiles, index, row, column);
    begin_statement(p, 1, &index);
    return TEXT("&%s[%s]", p->buffer[buffer], print(p, index).text);
}

static int parts(int64_t extent) {
    return extent > TILE_SIDE ? 2 : 1;
}

/* What is done with each tile of sums. */
static void print_sums(Printer *p, const char *macro) {
    const TileNest *t = p->tiles;
    const Stmt *store = t->dot.store;
    for (int i = 0; i < parts(t->rows); i++)
        for (int j = 0; j < parts(t->columns); j++) {
            int mark = p->named.n;
            const char *at = address(p, store->buffer, prepare(p, store->index[0]), TILE_SIDE * i,
                                     TILE_SIDE * j);
            print_line(p, "%s(%d, %s, %lld);", macro, 2 * i + j, at, (long long)t->columns * 4);
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

/* Does the loop do nothing but the product? */
static bool is_around(const Printer *p, const Stmt *s) {
    while (s && s != p->tiles->loop)
        s = s->kind == ST_for && s->body && !s->body->next ? s->body : NULL;
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
    for (int i = 0; i < parts(p->tiles->rows) && p->tiles->cleared; i++)
        for (int j = 0; j < parts(p->tiles->columns); j++)
            print_line(p, "MLCC_TILE_CLEAR(%d);", 2 * i + j);
    if (!p->tiles->cleared) print_sums(p, "MLCC_TILE_TAKE");
    p->tiles->cleared = false;
    p->tiles->taken = true;
    return true;
}

bool print_tiles(Printer *p, const Stmt *s) {
    const TileNest *t = p->tiles;
    if (!t || s != t->loop) return false;
    for (int i = 0; i < parts(t->rows); i++)
        print_operand(p, 4 + i, t->dot.rows, TILE_SIDE * i, 0, t->row_stride);
    for (int j = 0; j < parts(t->columns); j++)
        print_operand(p, 6 + j, t->dot.columns, 0, TILE_SIDE * j, t->column_stride);
    for (int i = 0; i < parts(t->rows); i++)
        for (int j = 0; j < parts(t->columns); j++)
            print_line(p, "MLCC_TILE_%s(%d, %d, %d);", t->dot.count == 4 ? "BYTES" : "BF16",
                       2 * i + j, 4 + i, 6 + j);
    return true;
}

void end_tiles(Printer *p) {
    print_sums(p, "MLCC_TILE_GIVE");
    p->tiles->taken = false;
}

void print_tiles_begin(Printer *p) {
    if (p->tiles)
        print_line(p, "MLCC_TILES_BEGIN(%d, %d, %d);", (int)p->tiles->rows, (int)p->tiles->columns,
                   (int)p->tiles->depth);
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
    text_add(
        out,
        "/* A matrix unit: tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns of products; two\n"
        " * side by side where there are more than 16. A row is `depth` words of columns. */\n"
        "static inline void mlcc_tile_shapes(unsigned char *shape, int rows, int columns,\n"
        "                                    int depth) {\n"
        "    for (int i = 0; i < 64; i++) shape[i] = i == 0;\n"
        "    for (int t = 0; t < 8; t++) {\n"
        "        const int i = t < 4 ? t / 2 : t % 2, j = t % 2;\n"
        "        int r = i ? rows - 16 : rows, c = j ? columns - 16 : columns;\n"
        "        r = t >= 6 ? depth : r > 16 ? 16 : r;\n"
        "        c = t == 4 || t == 5 ? depth : c > 16 ? 16 : c;\n"
        "        if (r <= 0 || c <= 0) continue;\n"
        "        shape[16 + 2 * t] = (unsigned char)(4 * c); /* bytes of a row */\n"
        "        shape[48 + t] = (unsigned char)r;\n"
        "    }\n"
        "}\n\n"
        "#if defined(__AMXTILE__) /* as clang has named them */\n"
        "#define __AMX_TILE__ 1\n"
        "#define __AMX_INT8__ __AMXINT8__\n"
        "#define __AMX_BF16__ __AMXBF16__\n"
        "#endif\n"
        "#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)\n"
        "#include <immintrin.h>\n\n"
        "/* Compilers do not know what the instructions read. */\n"
        "#define MLCC_IN_MEMORY(p) __asm__ volatile(\"\" : : \"r\"(p) : \"memory\")\n"
        "#define MLCC_TILES_BEGIN(rows, columns, depth) \\\n"
        "    unsigned char mlcc_shape[64]; \\\n"
        "    mlcc_tile_shapes(mlcc_shape, rows, columns, depth); \\\n"
        "    MLCC_IN_MEMORY(mlcc_shape); \\\n"
        "    _tile_loadconfig(mlcc_shape)\n"
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
        "#define MLCC_TILE_LOAD(t, at, stride) _tile_loadd(t, at, stride)\n"
        "#define MLCC_TILE_BYTES(sum, rows, columns) _tile_dpbusd(sum, rows, columns)\n"
        "#define MLCC_TILE_BF16(sum, rows, columns) _tile_dpbf16ps(sum, rows, columns)\n\n");
    text_add(out, may_tile_text);
    text_add(out, "#else\n");
    text_add(
        out,
        "typedef struct mlcc_tiles {\n"
        "    unsigned char shape[64];\n"
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
        "#define MLCC_TILES_BEGIN(rows, columns, depth) \\\n"
        "    mlcc_tiles tiles; \\\n"
        "    mlcc_tile_shapes(tiles.shape, rows, columns, depth)\n"
        "#define MLCC_TILES_END() ((void)0)\n"
        "#define MLCC_TILE_CLEAR(t) mlcc_tile_clear(&tiles, t)\n"
        "#define MLCC_TILE_TAKE(t, at, stride) mlcc_tile_load(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_GIVE(t, at, stride) mlcc_tile_give(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_LOAD(t, at, stride) mlcc_tile_load(&tiles, t, at, stride)\n"
        "#define MLCC_TILE_BYTES(sum, a, b) mlcc_tile_products(&tiles, sum, a, b, 1)\n"
        "#define MLCC_TILE_BF16(sum, a, b) mlcc_tile_products(&tiles, sum, a, b, 0)\n"
        "#define mlcc_may_tile() 1\n"
        "#endif\n\n");
}
