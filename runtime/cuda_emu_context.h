/* Switching stacks, for cuda_emu.c alone.
 *
 * context_make prepares a context that begins `entry` at the top of a stack; mlcc_emu_switch leaves
 * the current stack for another one. x86-64 and aarch64 have their own few instructions, because
 * ucontext, which serves any other machine (and -DMLCC_EMU_UCONTEXT), asks the kernel for the
 * signal mask at each switch and is some fifteen times slower.
 */
#ifndef MLCC_RUNTIME_CUDA_EMU_CONTEXT_H
#define MLCC_RUNTIME_CUDA_EMU_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__ELF__) && !defined(MLCC_EMU_UCONTEXT) && (defined(__x86_64__) || defined(__aarch64__))

typedef struct Context {
    void *sp;
} Context;

/* Saves the registers that a call must keep on this stack, its pointer in `save`, and goes on where
 * `to` was saved. */
__attribute__((visibility("hidden"))) void mlcc_emu_switch(Context *save, const Context *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl mlcc_emu_switch\n"
        ".hidden mlcc_emu_switch\n"
        ".type mlcc_emu_switch, @function\n"
        "mlcc_emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size mlcc_emu_switch, .-mlcc_emu_switch\n");

/* From high to low: a null return address, the entry point, six registers. */
static void context_make(Context *context, unsigned char *top, void (*entry)(void)) {
    uint64_t *at = (uint64_t *)(void *)(top - 8);
    memset(at - 7, 0, 8 * sizeof *at);
    at[-1] = (uint64_t)(uintptr_t)entry;
    context->sp = at - 7;
}
#else
__asm__(".text\n"
        ".globl mlcc_emu_switch\n"
        ".hidden mlcc_emu_switch\n"
        ".type mlcc_emu_switch, %function\n"
        "mlcc_emu_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x2, sp\n"
        "    str x2, [x0]\n"
        "    ldr x2, [x1]\n"
        "    mov sp, x2\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size mlcc_emu_switch, .-mlcc_emu_switch\n");

/* Twenty registers, of which x30 (the eleventh) is where `ret` goes. */
static void context_make(Context *context, unsigned char *top, void (*entry)(void)) {
    uint64_t *at = (uint64_t *)(void *)(top - 160);
    memset(at, 0, 160);
    at[11] = (uint64_t)(uintptr_t)entry;
    context->sp = at;
}
#endif

#else /* any other machine */

#include <ucontext.h>
typedef ucontext_t Context;

static void mlcc_emu_switch(Context *save, const Context *to) {
    swapcontext(save, to);
}

static void context_make(Context *context, unsigned char *top, void (*entry)(void)) {
    getcontext(context);
    context->uc_link = NULL;
    context->uc_stack.ss_size = 96 * 1024;
    context->uc_stack.ss_sp = top - context->uc_stack.ss_size;
    makecontext(context, entry, 0);
}
#endif

#endif
