/* One run of a model on the emulated board of examples/embed: executed instructions, bytes of
 * stack, and how far the results are from what they should be, in millionths. case.h, which
 * bench/mcu.py writes, has the arrays, RUN, which runs the model, and COMPARE_ALL, a COMPARE of
 * each output.
 */
#include "board.h"
#include "case.h"

static void write_number(const char *name, unsigned long value) {
    char text[16], *p = text + sizeof text - 1;
    *p = '\0';
    do *--p = (char)('0' + value % 10u);
    while ((value /= 10u) != 0);
    board_write(name);
    board_write(p);
    board_write("\n");
}

/* Of `count` results, the largest difference as a part of the largest that is wanted. */
#define COMPARE(type, got, wanted, count)                                                          \
    do {                                                                                           \
        double most = 0, apart = 0;                                                                \
        for (unsigned i = 0; i < (count); i++) {                                                   \
            double w = (double)((const type *)(const void *)(wanted))[i];                          \
            double d = (double)((const type *)(const void *)(got))[i] - w;                         \
            if (d < 0) d = -d;                                                                     \
            if (!(d < FAR)) d = FAR; /* of NaN, too */                                             \
            if (w < 0) w = -w;                                                                     \
            if (w > most) most = w;                                                                \
            if (d > apart) apart = d;                                                              \
        }                                                                                          \
        if (most > 0) apart /= most;                                                               \
        if (apart > error) error = apart;                                                          \
    } while (0)

int main(void) {
    const double FAR = 1e6;
    double error = 0;
    board_stack_paint();
    unsigned before = board_instructions();
    const int status = RUN;
    unsigned instructions = board_instructions() - before;
    write_number("stack ", board_stack_used());
    write_number("instructions ", instructions);
    COMPARE_ALL;
    if (status != 0) error = FAR;
    write_number("error ", (unsigned long)((error < 1000 ? error : 1000) * 1e6));
    return 0;
}
