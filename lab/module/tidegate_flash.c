// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * NAND chips whose bytes are files of the host.
 *
 * Each chip is a shared-memory PCI device of QEMU (ivshmem-plain); its second BAR is a file that the host maps too. A
 * page that is programmed here is in the host's page cache when the function returns, so killing QEMU is a power cut
 * and not a loss of the flash.
 *
 * It is not a chip with OOB or ECC, and keeps no bad-block table on the medium: bad blocks are a parameter.
 *
 * Rules of the medium, refused with EIO and a line in the log when broken: whole pages, in rising order within a block,
 * each once between erases, none in a bad block. Programming is AND, erasing is 0xFF. What was programmed before the
 * module was loaded is found by looking: a page that is not all 0xFF was.
 *
 *   modprobe tidegate_flash sizes=134217728,134217728 page=2048 block=131072 bad=0:17,1:3
 *
 * A power cut at an exact operation: cut_at=N ends the machine in the middle of the Nth program of a page or erase of a
 * block over all chips, counted from 1, after torn bytes of it (by default half). Nothing reaches a chip afterwards.
 * How many operations there were so far: /sys/module/tidegate_flash/parameters/operations.
 *
 * cuts=N,... does so for each chip alone, counted over its own operations: the machine goes on, and the chip fails every
 * program and erase from there on, as read-only as a host's file of it is. So many cuts take one boot.
 */
#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/mtd/mtd.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#define CHIPS_MAX 16
#define CHIP_BAR 2

static unsigned int page = 2048;
module_param(page, uint, 0444);
MODULE_PARM_DESC(page, "bytes of a page (2048)");

static unsigned int block = 131072;
module_param(block, uint, 0444);
MODULE_PARM_DESC(block, "bytes of an eraseblock (131072)");

static unsigned long sizes[CHIPS_MAX];
static int sizes_count;
module_param_array(sizes, ulong, &sizes_count, 0444);
MODULE_PARM_DESC(sizes, "bytes of each chip, by PCI address; the device's memory may be larger");

static unsigned int writebuf;
module_param(writebuf, uint, 0444);
MODULE_PARM_DESC(writebuf, "bytes that are best written at once, a power of two of pages (0: a page)");

static char *bad = "";
module_param(bad, charp, 0444);
MODULE_PARM_DESC(bad, "bad blocks as CHIP:BLOCK,...");

static unsigned long cut_at;
module_param(cut_at, ulong, 0644);
MODULE_PARM_DESC(cut_at, "end the machine in the middle of this operation, counted from 1 (0: never)");

static int torn = -1;
module_param(torn, int, 0644);
MODULE_PARM_DESC(torn, "bytes of that operation that are done (-1: half)");

static unsigned long cuts[CHIPS_MAX];
static int cuts_count;
module_param_array(cuts, ulong, &cuts_count, 0444);
MODULE_PARM_DESC(cuts, "the operation of each chip that its own power fails in, counted from 1 (0: never)");

static unsigned long operations;
module_param(operations, ulong, 0444);
MODULE_PARM_DESC(operations, "pages programmed and blocks erased so far");

struct chip {
	struct mtd_info mtd;
	struct mutex lock;
	u8 *memory;
	/* Of each block: the first page that may be programmed. */
	u32 *free_page;
	unsigned long *bad_blocks;
	unsigned long operations;
	unsigned long cut_at;
	bool is_off;
	char name[16];
};

/* Guards operations and cuts: one operation at a time is the last one. */
static DEFINE_MUTEX(count_lock);
static bool power_is_off;
static int chips;

static struct chip *chip_of(struct mtd_info *mtd)
{
	return mtd->priv;
}

static u32 block_of(loff_t at)
{
	return div_u64(at, block);
}

static bool is_erased(const u8 *memory, u32 length)
{
	return !memchr_inv(memory, 0xff, length);
}

/*
 * Counts an operation of length bytes and returns how many of them are to be done: all, or with *last set perhaps
 * fewer, when it is the one that the power fails in, or a negative error when it has failed before.
 */
static int begin_operation(struct chip *chip, u32 length, bool *last)
{
	int done = length;

	mutex_lock(&count_lock);
	if (power_is_off || chip->is_off) {
		done = -EIO;
	} else {
		power_is_off = ++operations == cut_at;
		chip->is_off = ++chip->operations == chip->cut_at;
		*last = power_is_off || chip->is_off;
		if (*last)
			done = torn < 0 ? length / 2 : min_t(u32, torn, length);
	}
	mutex_unlock(&count_lock);
	return done;
}

/* Behind the last operation: the machine ends, or the chip has failed. */
static int end_power(void)
{
	if (power_is_off)
		emergency_restart();
	return -EIO;
}

static int chip_read(struct mtd_info *mtd, loff_t from, size_t length, size_t *done, u_char *out)
{
	struct chip *chip = chip_of(mtd);

	mutex_lock(&chip->lock);
	memcpy(out, chip->memory + from, length);
	mutex_unlock(&chip->lock);
	*done = length;
	return 0;
}

static int program_page(struct chip *chip, loff_t to, const u8 *data)
{
	u32 in_block = block_of(to);
	u32 index = div_u64(to, page) - (u64)in_block * (block / page);
	u8 *memory = chip->memory + to;
	bool last = false;
	int i, length;

	if (test_bit(in_block, chip->bad_blocks)) {
		pr_err("%s: block %u is bad, page %u of it was to be programmed\n", chip->name, in_block, index);
		return -EIO;
	}
	if (index < chip->free_page[in_block]) {
		pr_err("%s: block %u: page %u was to be programmed, expected %u or above\n",
		       chip->name, in_block, index, chip->free_page[in_block]);
		return -EIO;
	}
	length = begin_operation(chip, page, &last);
	if (length < 0)
		return length;
	for (i = 0; i + (int)sizeof(long) <= length; i += sizeof(long))
		*(unsigned long *)(memory + i) &= *(const unsigned long *)(data + i);
	for (; i < length; i++)
		memory[i] &= data[i];
	chip->free_page[in_block] = index + 1;
	return last ? end_power() : 0;
}

static int chip_write(struct mtd_info *mtd, loff_t to, size_t length, size_t *done, const u_char *data)
{
	struct chip *chip = chip_of(mtd);
	u32 rest;
	int error = 0;

	*done = 0;
	div_u64_rem(to, page, &rest);
	if (rest || length % page) {
		pr_err("%s: %zu bytes at %#llx are not whole pages of %u\n", chip->name, length, to, page);
		return -EIO;
	}
	mutex_lock(&chip->lock);
	while (*done < length && !error) {
		error = program_page(chip, to + *done, data + *done);
		if (!error)
			*done += page;
	}
	mutex_unlock(&chip->lock);
	return error;
}

static int erase_block(struct chip *chip, u32 number)
{
	bool last = false;
	int length;

	if (test_bit(number, chip->bad_blocks)) {
		pr_err("%s: block %u is bad and was to be erased\n", chip->name, number);
		return -EIO;
	}
	length = begin_operation(chip, block, &last);
	if (length < 0)
		return length;
	memset(chip->memory + (size_t)number * block, 0xff, length);
	chip->free_page[number] = 0;
	return last ? end_power() : 0;
}

static int chip_erase(struct mtd_info *mtd, struct erase_info *what)
{
	struct chip *chip = chip_of(mtd);
	u32 number = block_of(what->addr), end = block_of(what->addr + what->len);
	int error = 0;

	mutex_lock(&chip->lock);
	for (; number < end && !error; number++) {
		error = erase_block(chip, number);
		if (error)
			what->fail_addr = (u64)number * block;
	}
	mutex_unlock(&chip->lock);
	return error;
}

static int chip_block_is_bad(struct mtd_info *mtd, loff_t at)
{
	return test_bit(block_of(at), chip_of(mtd)->bad_blocks);
}

static int chip_mark_bad(struct mtd_info *mtd, loff_t at)
{
	struct chip *chip = chip_of(mtd);

	pr_info("%s: block %u is marked bad until the module goes\n", chip->name, block_of(at));
	set_bit(block_of(at), chip->bad_blocks);
	return 0;
}

/* Takes the bad blocks of chip number from the parameter. */
static int read_bad_blocks(struct chip *chip, int number, u32 blocks)
{
	const char *rest = bad;
	unsigned int which, bad_block;
	int used;

	while (*rest) {
		if (sscanf(rest, "%u:%u%n", &which, &bad_block, &used) != 2) {
			pr_err("bad=%s: expected CHIP:BLOCK,... at \"%s\"\n", bad, rest);
			return -EINVAL;
		}
		if (which == number) {
			if (bad_block >= blocks) {
				pr_err("bad=%s: %s has %u blocks\n", bad, chip->name, blocks);
				return -EINVAL;
			}
			set_bit(bad_block, chip->bad_blocks);
		}
		rest += used;
		if (*rest == ',')
			rest++;
	}
	return 0;
}

static void find_free_pages(struct chip *chip, u32 blocks)
{
	u32 number, used;

	for (number = 0; number < blocks; number++) {
		const u8 *memory = chip->memory + (size_t)number * block;

		for (used = block / page; used > 0; used--)
			if (!is_erased(memory + (size_t)(used - 1) * page, page))
				break;
		chip->free_page[number] = used;
	}
}

static int chip_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	u64 size = pci_resource_len(device, CHIP_BAR);
	int number = chips, error;
	struct chip *chip;
	u32 blocks;

	if (number < sizes_count)
		size = min_t(u64, size, sizes[number]);
	if (!page || block % page || !size || size % block || page % sizeof(long)) {
		dev_err(&device->dev, "chip %d: %llu bytes are not blocks of %u in pages of %u\n",
			number, size, block, page);
		return -EINVAL;
	}
	blocks = div_u64(size, block);
	error = pcim_enable_device(device);
	if (error)
		return error;
	chip = devm_kzalloc(&device->dev, sizeof(*chip), GFP_KERNEL);
	if (!chip)
		return -ENOMEM;
	chip->bad_blocks = devm_kcalloc(&device->dev, BITS_TO_LONGS(blocks), sizeof(long), GFP_KERNEL);
	chip->free_page = devm_kcalloc(&device->dev, blocks, sizeof(u32), GFP_KERNEL);
	if (!chip->bad_blocks || !chip->free_page)
		return -ENOMEM;
	chip->memory = devm_memremap(&device->dev, pci_resource_start(device, CHIP_BAR), size, MEMREMAP_WB);
	if (IS_ERR(chip->memory))
		return PTR_ERR(chip->memory);
	mutex_init(&chip->lock);
	snprintf(chip->name, sizeof(chip->name), "flash%d", number);
	error = read_bad_blocks(chip, number, blocks);
	if (error)
		return error;
	find_free_pages(chip, blocks);
	chip->cut_at = number < cuts_count ? cuts[number] : 0;

	chip->mtd.name = chip->name;
	chip->mtd.owner = THIS_MODULE;
	chip->mtd.dev.parent = &device->dev;
	chip->mtd.priv = chip;
	chip->mtd.type = MTD_NANDFLASH;
	chip->mtd.flags = MTD_CAP_NANDFLASH;
	chip->mtd.size = size;
	chip->mtd.erasesize = block;
	chip->mtd.writesize = page;
	chip->mtd.writebufsize = writebuf ? writebuf : page;
	chip->mtd._read = chip_read;
	chip->mtd._write = chip_write;
	chip->mtd._erase = chip_erase;
	chip->mtd._block_isbad = chip_block_is_bad;
	chip->mtd._block_markbad = chip_mark_bad;
	error = mtd_device_register(&chip->mtd, NULL, 0);
	if (error)
		return error;
	pci_set_drvdata(device, chip);
	chips++;
	return 0;
}

static void chip_remove(struct pci_dev *device)
{
	struct chip *chip = pci_get_drvdata(device);

	WARN_ON(mtd_device_unregister(&chip->mtd));
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },	/* ivshmem */
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver flash_driver = {
	.name = "tidegate_flash",
	.id_table = ids,
	.probe = chip_probe,
	.remove = chip_remove,
};
module_pci_driver(flash_driver);

MODULE_DESCRIPTION("NAND chips whose bytes are files of the host");
MODULE_LICENSE("Dual MIT/GPL");
