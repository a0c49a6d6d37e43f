! SPDX-License-Identifier: BSD-3-Clause
! A program that knows nothing of the shim: solves A*x = b as the LINPACK benchmark does, by a blocked
! LU factorisation with partial pivoting whose updates are dgemm.
!
! usage: linpack DIRECTORY
!
! Prints a line "label first-seconds best-seconds", writes x to DIRECTORY/label and stops with an
! error when the residual is too large.
program linpack
    implicit none
    integer, parameter :: dp = kind(1d0), n = 1536, nb = 128, runs = 3
    real(dp), allocatable :: a(:, :), lu(:, :), b(:), x(:)
    real(dp) :: seconds(runs), residual
    integer :: run, unit, length
    integer(8) :: begin, finish, rate
    character(len=4096) :: directory
    external :: dgemm, dtrsm, dger

    call get_command_argument(1, directory, length)
    allocate (a(n, n), lu(n, n), b(n), x(n))
    call fill(a)
    b = sum(a, dim=2)
    do run = 1, runs
        lu = a
        x = b
        call system_clock(begin, rate)
        call factor(lu, x)
        call solve(lu, x)
        call system_clock(finish)
        seconds(run) = real(finish - begin, dp)/real(rate, dp)
    end do
    residual = maxval(abs(matmul(a, x) - b))/(n*maxval(abs(a))*maxval(abs(x))*epsilon(1d0))
    if (.not. residual < 16) error stop 'the residual is too large'
    print '(a,2f12.6)', 'linpack', seconds(1), minval(seconds(2:))
    open (newunit=unit, file=directory(1:length)//'/linpack', access='stream', form='unformatted')
    write (unit) x
    close (unit)

contains

    ! The same numbers in (-1/2, 1/2) in every run and with every compiler.
    subroutine fill(m)
        real(dp), intent(out) :: m(:, :)
        integer(8) :: state
        integer :: i, j
        state = 1
        do j = 1, n
            do i = 1, n
                state = mod(state*16807_8, 2147483647_8)
                m(i, j) = real(state, dp)/2147483647d0 - 0.5d0
            end do
        end do
    end subroutine

    ! Right-looking LU, interchanges applied to the right-hand side as well.
    subroutine factor(m, y)
        real(dp), intent(inout) :: m(:, :), y(:)
        integer :: j, w, r
        do j = 1, n, nb
            w = min(nb, n - j + 1)
            call panel(m, y, j, w)
            r = j + w
            if (r > n) exit
            call dtrsm('L', 'L', 'N', 'U', w, n - r + 1, 1d0, m(j, j), n, m(j, r), n)
            call dgemm('N', 'N', n - r + 1, n - r + 1, w, -1d0, m(r, j), n, m(j, r), n, 1d0, &
                       m(r, r), n)
        end do
    end subroutine

    subroutine panel(m, y, j, w)
        real(dp), intent(inout) :: m(:, :), y(:)
        integer, intent(in) :: j, w
        real(dp) :: row(n), t
        integer :: c, p
        do c = j, j + w - 1
            p = c - 1 + maxloc(abs(m(c:n, c)), dim=1)
            if (p /= c) then
                row = m(c, :)
                m(c, :) = m(p, :)
                m(p, :) = row
                t = y(c)
                y(c) = y(p)
                y(p) = t
            end if
            m(c + 1:n, c) = m(c + 1:n, c)/m(c, c)
            if (c < j + w - 1) then
                call dger(n - c, j + w - 1 - c, -1d0, m(c + 1, c), 1, m(c, c + 1), n, &
                          m(c + 1, c + 1), n)
            end if
        end do
    end subroutine

    subroutine solve(m, y)
        real(dp), intent(in) :: m(:, :)
        real(dp), intent(inout) :: y(:)
        integer :: j
        do j = 1, n
            y(j + 1:n) = y(j + 1:n) - y(j)*m(j + 1:n, j)
        end do
        do j = n, 1, -1
            y(j) = y(j)/m(j, j)
            y(1:j - 1) = y(1:j - 1) - y(j)*m(1:j - 1, j)
        end do
    end subroutine
end program
