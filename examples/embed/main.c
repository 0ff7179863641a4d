/* The digit classifier as firmware: no heap, no operating system, one static arena.
 *
 * Runs the generated model on every image of ../digits/heldout.h, then prints what it costs and
 * how many images it gets right. Ends with 0 when at least 97 % are right.
 */
#include "../digits/heldout.h"
#include "board.h"
#include "digits_model.h"

/* The only memory the model uses besides the stack: its size is known when compiling. */
static _Alignas(64) unsigned char arena[DIGITS_MODEL_ARENA_BYTES];

static void write_count(const char *before, unsigned count, const char *after) {
    char text[12];
    char *p = text + sizeof text - 1;
    *p = '\0';
    do *--p = (char)('0' + count % 10u);
    while ((count /= 10u) != 0);
    board_write(before);
    board_write(p);
    board_write(after);
}

/* The digit the model sees in image `i`, -1 when the model fails. */
static int classify(unsigned i) {
    static float input[DIGITS_MODEL_INPUT_SIZE], output[DIGITS_MODEL_OUTPUT_SIZE];
    int best = 0;
    for (unsigned p = 0; p < DIGITS_MODEL_INPUT_SIZE; p++)
        input[p] = (float)(heldout[i].pixels[p] - 'a') / 16.0f;
    if (digits_model_run(input, output, arena) != 0) return -1;
    for (int digit = 1; digit < (int)DIGITS_MODEL_OUTPUT_SIZE; digit++)
        if (output[digit] > output[best]) best = digit;
    return best;
}

int main(void) {
    unsigned right = 0;
    board_stack_paint();
    unsigned before = board_instructions();
    classify(0);
    unsigned instructions = board_instructions() - before;
    unsigned stack = board_stack_used();
    for (unsigned i = 0; i < HELDOUT_COUNT; i++) right += classify(i) == heldout[i].label;

    write_count("arena:        ", DIGITS_MODEL_ARENA_BYTES, " bytes\n");
    write_count("weights:      ", DIGITS_MODEL_WEIGHT_BYTES, " bytes\n");
    if (stack != 0) write_count("stack:        ", stack, " bytes\n");
    if (instructions != 0) write_count("instructions: ", instructions, " an image\n");
    write_count("right:        ", right, "");
    write_count(" of ", HELDOUT_COUNT, " unseen images\n");
    return right * 100u >= HELDOUT_COUNT * 97u ? 0 : 1;
}
