# SPDX-License-Identifier: BSD-3-Clause
# What a tester says: "TESTS FAILED ERRORS". An error is whatever is neither a passed nor a counted failed
# test; a program that does not come to its end has one more.

/\( *[0-9]+ +tests run\)/ { run += number($0, "\\( *[0-9]+ +tests run") }
/[0-9]+ out of +[0-9]+ tests failed/ {
    failed += number($0, "[0-9]+ out of")
    run += number($0, "out of +[0-9]+")
}
# Newer testers say it once more.
/TESTS: +[0-9]+ RUN, +[0-9]+ FAILED/ {
    failed += number($0, "[0-9]+ FAILED")
    next
}
# BLAS: the computational tests of a routine are one test.
/PASSED THE .*COMPUTATIONAL TESTS/ { run += number($0, "\\( *[0-9]+ CALLS") }
/COMPLETED THE .*COMPUTATIONAL TESTS/ {
    run += number($0, "\\( *[0-9]+ CALLS")
    failed++
}
/FAILED|FATAL|SUSPECT|ABANDONED|LESS THAN HALF|INCORRECTLY|failed the tests of|illegal value|error code|returned with INFO/ {
    errors++
}
/[Ee]nd of tests|END OF TESTS/ { ended = 1 }
END { printf "%d %d %d\n", run, failed, errors + !ended }

# The first number in what of the text matches.
function number(text, pattern)
{
    if (!match(text, pattern))
        return 0
    text = substr(text, RSTART, RLENGTH)
    match(text, /[0-9]+/)
    return substr(text, RSTART, RLENGTH) + 0
}
