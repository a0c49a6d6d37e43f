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

/* A slot is the address to jump to, and the name. */
.macro FUNCTION name
        .section .rodata.str1.1, "aMS", %progbits, 1
.Lname_\name:
        .asciz  "\name"
        .data
        .balign 16
.Lslot_\name:
        .quad   resolve, .Lname_\name
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
        .irp    r, rdi, rsi, rdx, rcx, r8, r9, rax, r11
        push    %\r
        .endr
        sub     $128, %rsp
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        movups  %xmm\n, 16 * \n(%rsp)
        .endr
        mov     8(%r11), %rdi
        call    clblas_shim_provide@PLT
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        movups  16 * \n(%rsp), %xmm\n
        .endr
        add     $128, %rsp
        pop     %r11
        mov     %rax, (%r11)
        mov     %rax, %r11
        .irp    r, rax, r9, r8, rcx, rdx, rsi, rdi, rbp
        pop     %\r
        .endr
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
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
        stp     x8, x16, [sp, 80]
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        str     x\n, [sp, 16 + 8 * \n]
        str     q\n, [sp, 96 + 16 * \n]
        .endr
        ldr     x0, [x16, 8]
        bl      clblas_shim_provide
        mov     x17, x0
        ldp     x8, x16, [sp, 80]
        str     x17, [x16]
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7
        ldr     x\n, [sp, 16 + 8 * \n]
        ldr     q\n, [sp, 96 + 16 * \n]
        .endr
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
