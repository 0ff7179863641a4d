/* What the example asks of the board it runs on; one file implements it for each board. */
#ifndef EMBED_BOARD_H
#define EMBED_BOARD_H

/* Prints a string that ends with a zero byte. */
void board_write(const char *text);

/* Fills the free part of the stack with a pattern, so that board_stack_used can tell afterwards
 * how deep the calls in between went: in bytes, 0 where the board cannot say. */
void board_stack_paint(void);
unsigned board_stack_used(void);

/* Executed instructions so far, on MPS2 of the last 2.6 billion; always 0 where the board has none.
 */
unsigned board_instructions(void);

#endif
