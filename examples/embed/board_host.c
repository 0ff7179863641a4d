/* The board of last resort: this computer, for trying the example without an ARM compiler. */
#include <stdio.h>

#include "board.h"

void board_write(const char *text) {
    fputs(text, stdout);
}

void board_stack_paint(void) {}

unsigned board_stack_used(void) {
    return 0;
}

unsigned board_instructions(void) {
    return 0;
}
