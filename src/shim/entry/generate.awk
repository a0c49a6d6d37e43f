# SPDX-License-Identifier: BSD-3-Clause
# Makes the exported functions of one kind from the table of routines and their names:
#
#   awk -v kind=fortran|cblas|lapacke -f generate.awk routines.def
#
# For each routine there are three sorts of functions. The exported ones pass their arguments on to
# *_enter, which is inlined: it declines a call of little work by a jump to the next library. All
# other calls go to *_decode, which fills in struct clb_entry and asks the route layer. What is the
# same for all is in abi.h.

function trim(text)
{
    gsub(/^[ \t"]+|[ \t"]+$/, "", text)
    return text
}

# Split a row at the commas that are in no string and in no inner parentheses.
function split_row(row,    i, c, depth, quoted, text, count)
{
    for (i = 1; i <= length(row); i++) {
        c = substr(row, i, 1)
        if (c == "\"")
            quoted = !quoted
        depth += !quoted && c == "("
        depth -= !quoted && c == ")"
        if (!quoted && depth == 0 && c == ",") {
            field[++count] = trim(text)
            text = ""
        } else {
            text = text c
        }
    }
    field[++count] = trim(text)
}

# Print a line of code, broken at commas.
function put(indent, text,    i, part, line, count, margin)
{
    count = split(text, part, /, /)
    margin = sprintf("%" indent "s", "")
    line = margin part[1]
    for (i = 2; i <= count; i++) {
        if (length(line ", " part[i]) > 98) {
            print line ","
            line = margin "    " part[i]
        } else {
            line = line ", " part[i]
        }
    }
    print line
}

function add(type, name, statement)
{
    parameters = parameters (parameters == "" ? "" : ", ") type name
    arguments = arguments (arguments == "" ? "" : ", ") name
    argument_count++
    decoding[++statements] = statement
}

# Set the parameters, the names of the arguments and their decoding; `alpha` and `beta` are the types
# of these.
function list_arguments(has_work, alpha, beta,    i, c, name, option, number)
{
    parameters = arguments = ""
    argument_count = letters = statements = 0
    option = kind == "fortran" ? "const char *" : kind == "cblas" ? "int " : "char "
    number = kind == "fortran" ? "const void *" : "int64_t "
    if (kind != "fortran")
        add("int ", "layout", "entry.layout = layout;")
    if (kind == "cblas")
        decoding[++statements] = "if (layout != CLB_ROW_MAJOR && layout != CLB_COL_MAJOR)\n        call->invalid = 'l';"
    if (kind == "lapacke")
        decoding[++statements] = "call->info = &info;"
    if (kind == "lapacke" && checks)
        decoding[++statements] = "entry.checks = clb_next_checks_nan(symbol, caller);"
    for (i = 1; i <= length(signature); i++) {
        c = substr(signature, i, 1)
        name = name_of[c]
        if (index("sud", c))
            add(option, name, "call->" field_of[c] " = clb_is_letter(" letter(c) ", " yes_no[c] ", '" c "', &call->invalid);")
        else if (index("tT", c))
            add(option, name, "call->" field_of[c] " = clb_op_of_letter(" letter(c) ");")
        else if (index("mnkr", c))
            add(number, name, "call->" name " = (size_t)" integer(name) ";")
        else if (c == "*")
            add(alpha, "alpha", "call->alpha = " (alpha ~ /\*$/ ? "" : "&") "alpha;")
        else if (c == "+")
            add(beta, "beta", "call->beta = " (beta ~ /\*$/ ? "" : "&") "beta;")
        else if (c != "w" && (c != "i" || kind == "fortran"))
            add("void *", name, "call->" name " = " name ";")
        else if (c == "w" && has_work)
            add("void *", "work", "call->work = work;")
        if (index("ABC", c))
            add(number, "ld" name, "call->ld" name " = (size_t)" integer("ld" name) ";")
        else if (c == "w" && has_work)
            add(number, "lwork", "call->lwork = " integer("lwork") ";")
        letters += index("sudtT", c) > 0
    }
}

# The same of a batch: struct clb_batch has addresses. C passes by value the count of groups; with
# strides all but matrices and complex scalars.
function list_batch(alpha, beta,    i, count, part, name, type, strided)
{
    parameters = arguments = ""
    argument_count = statements = 0
    letters = 2
    strided = flags ~ /s/
    if (kind == "cblas")
        add("int ", "layout", "entry.layout = layout;")
    count = split("transa transb m n k alpha a lda stridea b ldb strideb beta c ldc stridec count sizes", part, " ")
    for (i = 1; i <= count; i++) {
        name = part[i]
        if (name ~ /^stride/ && !strided || name == "count" && strided)
            continue
        type = kind == "fortran" || name ~ /^[abc]$/ || strided == (name == "count") ? "const void *" \
             : name == "alpha" ? alpha : name == "beta" ? beta : name ~ /^trans/ ? "int " : "int64_t "
        add(type, name, "batch." name " = " (type ~ /\*$/ ? "" : "&") name ";")
    }
}

function integer(name)
{
    return kind == "fortran" ? "clb_int(" name ", wide)" : "clb_c_int(" name ", wide)"
}

function letter(c)
{
    return kind == "fortran" ? "*" name_of[c] : kind == "cblas" ? "clb_letter_of_cblas(" name_of[c] ", " cblas[c] ")" : name_of[c]
}

# The sizes of the work formula that it has, or that one of them needs: see `sizes` in routines.def.
function put_sizes(    i, c, least)
{
    least = sizes ~ /s/
    if (sizes ~ /[oe]/)
        print "    const bool right = " (kind == "cblas" ? "side == CLB_RIGHT" : "(" letter("s") " & 0xdf) == 'R'") ";"
    for (i = 1; i <= 3; i++) {
        c = substr("mnk", i, 1)
        if (work ~ ("(^|[^a-z])" c "([^a-z]|$)") || (least && i < 3))
            put(4, "const double work_" c " = " size(substr(sizes, i, 1)) ";")
    }
}

function size(c)
{
    if (c == "o")
        return "(double)(right ? " integer("n") " : " integer("m") ")"
    if (c == "e")
        return "(double)(right ? " integer("m") " : " integer("n") ")"
    if (c == "s")
        return "work_m < work_n ? work_m : work_n"
    return "(double)" integer(name_of[c])
}

function work_of_sizes(    text)
{
    text = work
    gsub(/[mnk]/, "work_&", text)
    return text
}

# The functions of a routine for precisions whose arguments have the same types. `function_name` is
# unique; `forms` has the numbers of the exported names.
function put_functions(function_name, letters_of, first, last, has_work, alpha, beta,
                       i, f, type, lengths, ones, direct, result)
{
    if (batch)
        list_batch(alpha, beta)
    else
        list_arguments(has_work, alpha, beta)
    result = kind == "lapacke" ? "int64_t" : "void"
    lengths = ones = ""
    for (i = 0; kind == "fortran" && i < letters; i++) {
        lengths = lengths ", size_t"
        ones = ones ", 1"
    }
    put(0, "typedef " result " " function_name "(" parameters ");")
    if (lengths != "")
        put(0, "typedef " result " " function_name "_lengths(" parameters lengths ");")
    type = "((" function_name (lengths != "" ? "_lengths" : "") " *)target->function)("

    print "\nstatic CLB_NOINLINE " result " " function_name "_decode("
    put(4, "struct clb_symbol *symbol, const struct clb_target *target, const void *caller, " parameters ")")
    print "{"
    if (!batch)
        print "    const bool wide = target->ilp64;"
    if (kind == "lapacke")
        print "    int64_t info = 0;"
    print "    struct clb_entry entry = clb_entry_for(symbol, target, caller);"
    print batch ? "    struct clb_batch batch = {0};\n    entry.batch = &batch;" \
                : "    struct clb_call *const call = &entry.call;"
    for (i = 1; i <= statements; i++)
        put(4, decoding[i])
    if (kind == "lapacke")
        print "    if (clb_route_lapacke(&entry, NULL))\n        return clb_c_int(info, wide);"
    else
        print "    if (clb_route(&entry, NULL))\n        return;"
    if (composed) {
        print "    if (clb_next_is_composed(target)) {"
        print "        clb_compose(&entry);"
        print "        return;\n    }"
    }
    print "    const double begin = entry.timed ? clb_now() : 0;"
    put(4, (kind == "lapacke" ? "const int64_t result = " : "") type arguments ones ");")
    if (kind == "lapacke")
        print "    clb_route_end_declined();"
    print "    if (entry.timed)\n        clb_next_end(&entry, begin);"
    if (kind == "lapacke")
        print "    return clb_c_int(result, wide);"
    print "}\n"

    # A jump leaves the lengths where they are. Where they would be in registers, which the code
    # before the jump may use, they are passed.
    direct = "((" function_name " *)target->function)(" arguments ");"
    if (lengths != "" && argument_count < 6)
        direct = type arguments ones ");"
    print "CLB_INLINE " result " " function_name "_enter("
    put(4, "struct clb_symbol *symbol, const void *caller, " parameters ")")
    print "{\n    const struct clb_target *target = clb_next_get_target(symbol, caller);"
    if (!batch) {
        print "    const bool wide = target->ilp64;"
        put_sizes()
        put(4, "if (" (composed ? "!clb_next_is_composed(target) && " : "") "clb_work_is_small(symbol, " work_of_sizes() "))")
        put(8, (kind == "lapacke" ? "return " : "") direct)
        if (kind != "lapacke")
            print "    else"
    }
    put(kind == "lapacke" || batch ? 4 : 8, (kind == "lapacke" ? "return " : "") function_name "_decode(symbol, target, caller, " arguments ");")
    print "}\n"

    for (i = 1; i <= length(letters_of); i++) {
        for (f = first; f <= last; f++) {
            name = substr(letters_of, i, 1) stem
            print function_name " " prefix[f] name suffix[f] ";"
            put(0, "CLB_PUBLIC " result " " prefix[f] name suffix[f] "(" parameters ")")
            print "{"
            put(4, (kind == "lapacke" ? "return " : "") function_name "_enter(&clb_symbols[CLB_SYMBOL_" name "_" form[f] "], __builtin_return_address(0), " arguments ");")
            print "}\n"
        }
    }
}

function put_routine(    i, x, real_alpha, real_beta, group)
{
    batch = flags ~ /b/
    composed = batch || others ~ / /
    name_of["t"] = signature ~ /T/ ? "transa" : "trans"
    checks = 0
    if (kind == "fortran") {
        put_functions("fortran_" stem, precisions, first_of["FORTRAN"], last_of["FORTRAN"], 1, "const void *", "const void *")
    } else if (kind == "cblas" && library == "BLAS") {
        real_alpha = flags ~ /\*/
        real_beta = flags ~ /\+/
        for (i = 1; i <= length(precisions); i++) {
            x = substr(precisions, i, 1)
            # Complex precisions have the same types unless a scalar is real.
            group = x
            if (x == "c" && !real_alpha && !real_beta)
                group = "cz"
            if (x == "z" && !real_alpha && !real_beta)
                continue
            put_functions("c_" group "_" stem, group, first_of["C"], last_of["C"], 1,
                          scalar_type(x, real_alpha), scalar_type(x, real_beta))
        }
    } else if (kind == "lapacke" && library == "LAPACKE") {
        checks = 1
        put_functions("lapacke_" stem, precisions, first_of["LAPACKE"], last_of["LAPACKE"], 0, "const void *", "const void *")
        checks = 0
        put_functions("lapacke_work_" stem, precisions, first_of["WORK"], last_of["WORK"], 1, "const void *", "const void *")
    }
}

function scalar_type(x, is_real)
{
    if (index("cz", x) && !is_real)
        return "const void *"
    return index("sc", x) ? "float " : "double "
}

BEGIN {
    split("s side u uplo d diag t trans T transb m m n n k k r nrhs A a B b C c p ipiv q tau i info", pair, " ")
    for (i = 1; pair[i] != ""; i += 2)
        name_of[pair[i]] = pair[i + 1]
    split("s right u upper d unit t transa T transb", pair2, " ")
    for (i = 1; pair2[i] != ""; i += 2)
        field_of[pair2[i]] = pair2[i + 1]
    yes_no["s"] = "'R', 'L'"
    yes_no["u"] = "'U', 'L'"
    yes_no["d"] = "'U', 'N'"
    cblas["s"] = "141, \"LR\""
    cblas["u"] = "121, \"UL\""
    cblas["d"] = "131, \"NU\""
    cblas["t"] = cblas["T"] = "111, \"NTC\""
    print "/* Made from src/blas/routines.def by src/shim/entry/generate.awk. */"
    print "#include \"shim/entry/abi.h\"\n"
}

# The forms of names: X(routine, form, prefix, suffix, abi, always_ilp64)
/^ *X\(routine, [a-z]/ {
    text = $0
    sub(/^ *X\(/, "", text)
    sub(/\).*$/, "", text)
    split_row(text)
    form[++forms] = field[2]
    prefix[forms] = field[3]
    suffix[forms] = field[4]
    abi = field[2] ~ /work/ ? "WORK" : field[5]
    if (!(abi in first_of))
        first_of[abi] = forms
    last_of[abi] = forms
}

/^CLB_ROUTINE\(/ {
    text = $0
    sub(/^CLB_ROUTINE\(/, "", text)
    sub(/\)[^)]*$/, "", text)
    split_row(text)
    stem = field[1]
    precisions = field[2]
    library = field[3]
    signature = field[4]
    flags = field[9]
    sizes = field[10]
    work = field[11]
    others = field[13]
    print "/* ---- " stem " ---- */\n"
    put_routine()
}
