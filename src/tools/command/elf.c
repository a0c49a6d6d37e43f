/* SPDX-License-Identifier: BSD-3-Clause
 * Executables and shared libraries as files: what they define, refer to and need. */
#include "command.h"
#include "shim/next/next.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool clb_name_is_ours(const char *name)
{
    static json_t *names;
    if (names == NULL) {
        names = json_object();
        for (size_t i = 0; i < CLB_SYMBOLS; i++)
            json_object_set_new(names, clb_symbols[i].next.name, json_true());
    }
    return json_object_get(names, name) != NULL;
}

/* All offsets come from the file and are checked against its size. */
struct image {
    const unsigned char *data;
    size_t size;
};

static const void *at(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset <= image->size && size <= image->size - offset ? image->data + offset : NULL;
}

/* A table of the file's structs, which are aligned in good files. */
static const void *table_at(const struct image *image, uint64_t offset, uint64_t size)
{
    return offset % _Alignof(ElfW(Shdr)) == 0 ? at(image, offset, size) : NULL;
}

/* The string at an offset of a string table; NULL: it does not end in the table. */
static const char *string_at(const struct image *image, const ElfW(Shdr) * table, uint64_t offset)
{
    const char *text = offset < table->sh_size
                           ? at(image, table->sh_offset + offset, table->sh_size - offset)
                           : NULL;
    return text != NULL && memchr(text, '\0', table->sh_size - offset) != NULL ? text : NULL;
}

static void note(json_t *names, const char *name)
{
    if (name != NULL)
        json_object_set_new(names, name, json_true());
}

static void read_symbols(const struct image *image, const ElfW(Shdr) * symbols,
                         const ElfW(Shdr) * strings, const struct clb_elf *elf)
{
    const ElfW(Sym) *symbol = table_at(image, symbols->sh_offset, symbols->sh_size);
    for (size_t i = 0; symbol != NULL && i < symbols->sh_size / sizeof *symbol; i++) {
        const char *name = string_at(image, strings, symbol[i].st_name);
        int type = ELF64_ST_TYPE(symbol[i].st_info);
        if (name == NULL || !clb_name_is_ours(name))
            continue;
        if (symbol[i].st_shndx == SHN_UNDEF)
            note(elf->refers, name);
        else if (type == STT_FUNC || type == STT_GNU_IFUNC)
            note(elf->defines, name);
    }
}

static void read_needed(const struct image *image, const ElfW(Shdr) * dynamic,
                        const ElfW(Shdr) * strings, const struct clb_elf *elf)
{
    const ElfW(Dyn) *entry = table_at(image, dynamic->sh_offset, dynamic->sh_size);
    for (size_t i = 0; entry != NULL && i < dynamic->sh_size / sizeof *entry; i++) {
        if (entry[i].d_tag == DT_NEEDED)
            note(elf->needs, string_at(image, strings, entry[i].d_un.d_val));
    }
}

static clb_elf_kind read_image(const struct image *image, const struct clb_elf *elf)
{
    const ElfW(Ehdr) *header = at(image, 0, sizeof *header);
    bool dynamic = false;
    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return CLB_ELF_NONE;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(ElfW(Shdr)) ||
        header->e_phentsize != sizeof(ElfW(Phdr)))
        return CLB_ELF_FOREIGN;
    const ElfW(Phdr) *segment = table_at(image, header->e_phoff, header->e_phnum * sizeof *segment);
    for (size_t i = 0; segment != NULL && i < header->e_phnum; i++)
        dynamic = dynamic || segment[i].p_type == PT_INTERP;
    const ElfW(Shdr) *section = table_at(image, header->e_shoff, header->e_shnum * sizeof *section);
    for (size_t i = 0; section != NULL && i < header->e_shnum; i++) {
        const ElfW(Shdr) *strings = &section[section[i].sh_link];
        if (section[i].sh_link >= header->e_shnum)
            continue;
        if (section[i].sh_type == SHT_SYMTAB || section[i].sh_type == SHT_DYNSYM)
            read_symbols(image, &section[i], strings, elf);
        else if (section[i].sh_type == SHT_DYNAMIC)
            read_needed(image, &section[i], strings, elf);
    }
    return dynamic ? CLB_ELF_PROGRAM : CLB_ELF_STATIC;
}

const struct clb_elf *clb_elf_read(const char *path)
{
    static struct clb_elf *known;
    struct clb_elf *elf = known;
    struct stat info;
    while (elf != NULL && strcmp(elf->path, path) != 0)
        elf = elf->next;
    if (elf != NULL)
        return elf;
    elf = malloc(sizeof *elf);
    *elf = (struct clb_elf){strdup(path),  CLB_ELF_NONE,  json_object(),
                            json_object(), json_object(), known};
    known = elf;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        const size_t size = (size_t)info.st_size;
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
            elf->kind = read_image(&(struct image){data, size}, elf);
            munmap(data, size);
        }
    }
    if (fd >= 0)
        close(fd);
    return elf;
}
