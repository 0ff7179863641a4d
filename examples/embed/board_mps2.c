/* ARM's MPS2 board with a Cortex-M4 (AN386), as QEMU has it: start-up code, and output through
 * semihosting, by which a program asks the debugger or emulator to print and to end.
 *
 * With `-icount shift=6` QEMU lets 64 ns pass for every instruction, and the board's timer 0 counts
 * 40 ns a tick: that makes it an instruction counter, the same in every run.
 */
#include <stdint.h>

#include "board.h"

enum { SYS_WRITE0 = 0x04, SYS_EXIT_EXTENDED = 0x20, STOPPED_BY_EXIT = 0x20026 };

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define TIMER_CONTROL     REGISTER(0x40000000u) /* 32 bits, downwards */
#define TIMER_VALUE       REGISTER(0x40000004u)
#define TIMER_RELOAD      REGISTER(0x40000008u)
#define COPROCESSORS      REGISTER(0xE000ED88u)
#define PAINT             0xA5A5A5A5u

/* Set by mps2.ld. */
extern uint32_t ld_data_load[], ld_data_start[], ld_data_end[];
extern uint32_t ld_bss_start[], ld_bss_end[], ld_stack_top[];

int main(void);
void board_start(void);

static uint32_t *stack_begin; /* of whoever is called next */

static int semihost(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void stop(uint32_t status) {
    uint32_t arguments[2] = {STOPPED_BY_EXIT, status};
    for (;;) semihost(SYS_EXIT_EXTENDED, arguments);
}

static void fault(void) {
    board_write("embed: the processor stopped with a fault\n");
    stop(2);
}

void board_start(void) {
    uint32_t *from = ld_data_load;
    COPROCESSORS |= 0xFu << 20; /* the floating-point unit is off at reset */
    __asm__ volatile("dsb\n\tisb");
    for (uint32_t *to = ld_data_start; to < ld_data_end; to++) *to = *from++;
    for (uint32_t *to = ld_bss_start; to < ld_bss_end; to++) *to = 0;
    TIMER_RELOAD = UINT32_MAX;
    TIMER_VALUE = UINT32_MAX;
    TIMER_CONTROL = 1; /* run, without an interrupt */
    stop((uint32_t)main());
}

/* The vector table: where the stack begins, then where reset and the four faults go. */
typedef union {
    uint32_t *stack;
    void (*handler)(void);
} Vector;

extern const Vector board_vectors[7];
__attribute__((section(".vectors"), used)) const Vector board_vectors[7] = {
    {.stack = ld_stack_top}, {.handler = board_start}, {.handler = fault}, {.handler = fault},
    {.handler = fault},      {.handler = fault},       {.handler = fault}};

void board_write(const char *text) {
    semihost(SYS_WRITE0, text);
}

/* What is in use lies at the stack pointer and above. The caller's, where the stack of the next
 * call begins, may be a little higher: between them is what this function itself has put there. */
void board_stack_paint(void) {
    uint32_t *own;
    __asm__ volatile("mov %0, sp" : "=r"(own));
    for (volatile uint32_t *p = ld_bss_end; p < own; p++) *p = PAINT;
    stack_begin = __builtin_dwarf_cfa();
}

unsigned board_stack_used(void) {
    uint32_t *p = ld_bss_end;
    while (p < stack_begin && *(volatile uint32_t *)p == PAINT) p++;
    return (unsigned)(stack_begin - p) * 4u;
}

unsigned board_instructions(void) {
    return (unsigned)((uint64_t)(UINT32_MAX - TIMER_VALUE) * 5 / 8);
}
