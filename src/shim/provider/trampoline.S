/* SPDX-License-Identifier: BSD-3-Clause */
/* Trampolines of libblas.so.3 and liblapack.so.3: each name jumps to the address in its slot, so that arguments,
 * stack and return address are the caller's. A slot first has `resolve`, which gets the address from the shim
 * (clblas_shim_provide), stores it and jumps. Two threads that do so at once store the same address. */

        .data
        .balign 16
        /* By this name the shim knows a provider. */
        .globl  clblas_shim_provider
        .type   clblas_shim_provider, %object
        .size   clblas_shim_provider, 1
clblas_shim_provider:
        .byte   1

.macro DATA name
        .bss
        .balign 4
        .globl  \name
        .type   \name, %object
        .size   \name, 4
\name:  .zero   4
.endm

.macro NEED name
        .data
        .balign 8
        .quad   \name
.endm

/* A slot: the address to jump to, and the name. */
.macro SLOT name
        .section .rodata.str1.1, "aMS", %progbits, 1
.Lname_\name:
        .asciz  "\name"
        .data
        .balign 16
.Lslot_\name:
        .quad   resolve, .Lname_\name
.endm

.macro FUNCTION name
        SLOT    \name
        .text
        .balign 16
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        JUMP    .Lslot_\name
        .cfi_endproc
        .size   \name, . - \name
.endm

#ifdef __x86_64__
/* r11 belongs to nobody at a call; rax has the count of vector registers for variable arguments. */
.macro JUMP slot
        endbr64
        lea     \slot(%rip), %r11
        jmp     *(%r11)
.endm

        .text
        .type   resolve, %function
resolve:
        .cfi_startproc
        endbr64
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register %rbp
        sub     $192, %rsp
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        movups  %xmm\n, 16 * \n(%rsp)
        .endr
        mov     %rdi, 128(%rsp)
        mov     %rsi, 136(%rsp)
        mov     %rdx, 144(%rsp)
        mov     %rcx, 152(%rsp)
        mov     %r8, 160(%rsp)
        mov     %r9, 168(%rsp)
        mov     %rax, 176(%rsp)
        mov     %r11, 184(%rsp)
        mov     8(%r11), %rdi
        call    clblas_shim_provide@PLT
        mov     184(%rsp), %r11
        mov     %rax, (%r11)
        mov     %rax, %r11
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        movups  16 * \n(%rsp), %xmm\n
        .endr
        mov     128(%rsp), %rdi
        mov     136(%rsp), %rsi
        mov     144(%rsp), %rdx
        mov     152(%rsp), %rcx
        mov     160(%rsp), %r8
        mov     168(%rsp), %r9
        mov     176(%rsp), %rax
        leave
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc
        .size   resolve, . - resolve
#define FEATURES 0xc0000002, 4, 3 /* x86: indirect branch tracking, shadow stack */

#elif defined __aarch64__
/* x16 and x17 are the linker's; a branch through them may go to `bti c`. */
.macro JUMP slot
        bti     c
        adrp    x16, \slot
        add     x16, x16, :lo12:\slot
        ldr     x17, [x16]
        br      x17
.endm

        .arch   armv8.5-a
        .text
        .type   resolve, %function
resolve:
        .cfi_startproc
        bti     c
        stp     x29, x30, [sp, -240]!
        .cfi_def_cfa_offset 240
        .cfi_offset 29, -240
        .cfi_offset 30, -232
        mov     x29, sp
        stp     x0, x1, [sp, 16]
        stp     x2, x3, [sp, 32]
        stp     x4, x5, [sp, 48]
        stp     x6, x7, [sp, 64]
        stp     x8, x16, [sp, 80]
        stp     q0, q1, [sp, 96]
        stp     q2, q3, [sp, 128]
        stp     q4, q5, [sp, 160]
        stp     q6, q7, [sp, 192]
        ldr     x0, [x16, 8]
        bl      clblas_shim_provide
        mov     x17, x0
        ldp     x8, x16, [sp, 80]
        str     x17, [x16]
        ldp     x0, x1, [sp, 16]
        ldp     x2, x3, [sp, 32]
        ldp     x4, x5, [sp, 48]
        ldp     x6, x7, [sp, 64]
        ldp     q0, q1, [sp, 96]
        ldp     q2, q3, [sp, 128]
        ldp     q4, q5, [sp, 160]
        ldp     q6, q7, [sp, 192]
        ldp     x29, x30, [sp], 240
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        br      x17
        .cfi_endproc
        .size   resolve, . - resolve
#define FEATURES 0xc0000000, 4, 1 /* aarch64: branch targets are marked */
#endif

        .section .note.gnu.property, "a", %note
        .balign 8
        .long   4, 16, 5
        .asciz  "GNU"
        .long   FEATURES, 0
        .section .note.GNU-stack, "", %progbits
