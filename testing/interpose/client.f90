! SPDX-License-Identifier: BSD-3-Clause
! A Fortran program that knows nothing of the shim. Prints nothing when the products are right.
program client
    implicit none
    integer, parameter :: sizes(4) = [3, 30, 39, 600]
    integer :: i
    do i = 1, size(sizes)
        call single(sizes(i))
        call double(sizes(i))
    end do
contains
    subroutine single(n)
        integer, intent(in) :: n
        real, allocatable :: a(:,:), b(:,:), c(:,:), d(:,:)
        external :: sgemm
        allocate(a(n, n), b(n, n), c(n, n), d(n, n))
        call random_number(a)
        call random_number(b)
        a = anint(8*a - 4)
        b = anint(8*b - 4)
        c = 1
        call sgemm('N', 'T', n, n, n, 2.0, a, n, b, n, -1.0, c, n)
        d = 2*matmul(a, transpose(b)) - 1
        if (any(c /= d)) stop 'sgemm is wrong'
    end subroutine
    subroutine double(n)
        integer, intent(in) :: n
        double precision, allocatable :: a(:,:), b(:,:), c(:,:), d(:,:)
        external :: dgemm
        allocate(a(n, n), b(n, n), c(n, n), d(n, n))
        call random_number(a)
        call random_number(b)
        a = anint(8*a - 4)
        b = anint(8*b - 4)
        c = 1
        call dgemm('T', 'N', n, n, n, 2d0, a, n, b, n, -1d0, c, n)
        d = 2*matmul(transpose(a), b) - 1
        if (any(c /= d)) stop 'dgemm is wrong'
    end subroutine
end program
