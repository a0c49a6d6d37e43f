/* Executables and shared libraries as files: what they define, refer to and need. */
#include "command.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file in memory. All offsets come from the file and are checked against its size. */
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

static void visit_symbols(const struct image *image, const ElfW(Shdr) * symbols,
                          const ElfW(Shdr) * strings, clb_elf_visit *visit, void *argument)
{
    const ElfW(Sym) *symbol = table_at(image, symbols->sh_offset, symbols->sh_size);
    for (size_t i = 0; symbol != NULL && i < symbols->sh_size / sizeof *symbol; i++) {
        const char *name = string_at(image, strings, symbol[i].st_name);
        int type = ELF64_ST_TYPE(symbol[i].st_info);
        bool defined = symbol[i].st_shndx != SHN_UNDEF;
        if (name != NULL && *name != '\0' &&
            (!defined || type == STT_FUNC || type == STT_GNU_IFUNC))
            visit(name, defined ? CLB_ELF_DEFINES : CLB_ELF_REFERS, argument);
    }
}

static void visit_needed(const struct image *image, const ElfW(Shdr) * dynamic,
                         const ElfW(Shdr) * strings, clb_elf_visit *visit, void *argument)
{
    const ElfW(Dyn) *entry = table_at(image, dynamic->sh_offset, dynamic->sh_size);
    for (size_t i = 0; entry != NULL && i < dynamic->sh_size / sizeof *entry; i++) {
        const char *name =
            entry[i].d_tag == DT_NEEDED ? string_at(image, strings, entry[i].d_un.d_val) : NULL;
        if (name != NULL)
            visit(name, CLB_ELF_NEEDS, argument);
    }
}

static clb_elf_kind read_image(const struct image *image, clb_elf_visit *visit, void *argument)
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
    for (size_t i = 0; section != NULL && visit != NULL && i < header->e_shnum; i++) {
        const ElfW(Shdr) *strings = &section[section[i].sh_link];
        if (section[i].sh_link >= header->e_shnum)
            continue;
        if (section[i].sh_type == SHT_SYMTAB || section[i].sh_type == SHT_DYNSYM)
            visit_symbols(image, &section[i], strings, visit, argument);
        else if (section[i].sh_type == SHT_DYNAMIC)
            visit_needed(image, &section[i], strings, visit, argument);
    }
    return dynamic ? CLB_ELF_PROGRAM : CLB_ELF_STATIC;
}

clb_elf_kind clb_elf_read(const char *path, clb_elf_visit *visit, void *argument)
{
    struct image image = {0};
    struct stat info;
    clb_elf_kind kind = CLB_ELF_NONE;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        image = (struct image){data != MAP_FAILED ? data : NULL,
                               data != MAP_FAILED ? (size_t)info.st_size : 0};
    }
    if (fd >= 0)
        close(fd);
    if (image.data != NULL) {
        kind = read_image(&image, visit, argument);
        munmap((void *)(uintptr_t)image.data, image.size);
    }
    return kind;
}
