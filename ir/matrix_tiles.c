/* Does this machine's matrix unit work? See target.h.
 *
 * Intel's AMX: the processor has it (CPUID 7), the system saves its state (XCR0) and gives it to
 * this program when asked. A small product of bytes, done in the way of generated code, must be
 * right then.
 */
#include "ir/target.h"

#if defined(__clang__)
#define HAS_TILES (__clang_major__ >= 12)
#elif defined(__GNUC__)
#define HAS_TILES (__GNUC__ >= 11)
#else
#define HAS_TILES 0
#endif

#if defined(__x86_64__) && defined(__linux__) && HAS_TILES
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define TILE_STATE ((1u << 17) | (1u << 18)) /* bits of XCR0: shapes and data */
#define ROWS       3
#define WORDS      2
#define COLUMNS    5

static bool processor_has_it(void) {
    const unsigned wanted = (1u << 24) | (1u << 25) | (1u << 22); /* tiles, of bytes, of bf16 */
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27)) return false; /* XGETBV */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE;
}

/* arch_prctl(ARCH_REQ_XCOMP_PERM, tile data) */
static bool system_gives_it(void) {
    long result = 158;
    __asm__ volatile("syscall" : "+a"(result) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    return result == 0;
}

__attribute__((target("amx-tile,amx-int8"), noinline)) static void
multiply(uint8_t rows[ROWS][64], int8_t columns[WORDS][64], int32_t sums[ROWS][16]) {
    unsigned char shape[64] = {1};
    shape[16] = 4 * COLUMNS, shape[48] = ROWS;
    shape[16 + 2 * 4] = 4 * WORDS, shape[48 + 4] = ROWS;
    shape[16 + 2 * 6] = 4 * COLUMNS, shape[48 + 6] = WORDS;
    __asm__ volatile("" : : "r"(shape), "r"(rows), "r"(columns), "r"(sums) : "memory");
    _tile_loadconfig(shape);
    _tile_loadd(0, sums, 64);
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, columns, 64);
    _tile_dpbusd(0, 4, 6);
    _tile_stored(0, sums, 64);
    _tile_release();
    __asm__ volatile("" : : "r"(sums) : "memory");
}

static bool products_are_right(void) {
    uint8_t rows[ROWS][64];
    int8_t columns[WORDS][64];
    int32_t sums[ROWS][16], wanted[ROWS][16];
    for (int i = 0; i < ROWS * 64; i++) rows[i / 64][i % 64] = (uint8_t)(i * 89 + 7);
    for (int i = 0; i < WORDS * 64; i++) columns[i / 64][i % 64] = (int8_t)(i * 57 % 256 - 128);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 16; c++) {
            int32_t sum = sums[r][c] = r * 1000 - c;
            for (int k = 0; k < 4 * WORDS && c < COLUMNS; k++)
                sum += rows[r][k] * columns[k / 4][4 * c + k % 4];
            wanted[r][c] = sum;
        }
    multiply(rows, columns, sums);
    return memcmp(sums, wanted, sizeof sums) == 0;
}

bool matrix_tiles_work(void) {
    return processor_has_it() && system_gives_it() && products_are_right();
}
#else
bool matrix_tiles_work(void) {
    return false;
}
#endif
