//! Layouts of known controllers and drivers, tried in this order.
//!
//! Each family is a name, a sentence, and a function from the sizes of a page to layouts. The sources are Linux's
//! drivers as documentation of the hardware, data sheets, and public tools that read dumps; `docs/formats/nand-ecc.md`
//! names the source of each, and which ones a vector from outside has confirmed.

use super::hamming::HammingOrder::{Linux, Omap, SmartMedia};
use super::layout::{Area, BitOrder, Code, Layout, Mask, Placement, Skip};
use super::spec::Shape;
use BitOrder::{HighestFirst, LowestFirst};

/// The second polynomial of GF(2^14): Atmel, MediaTek.
const SECOND_POLYNOMIAL: u32 = 0x4443;
/// The third one: Allwinner, Broadcom.
const THIRD_POLYNOMIAL: u32 = 0x5803;

/// Strengths tried where a driver takes any.
const STRENGTHS: &[u32] = &[1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40, 60];
/// The common ones.
const COMMON_STRENGTHS: &[u32] = &[4, 8, 12, 16, 24, 32, 40, 60];

/// A kind of controller or driver.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, for options and reports.
    pub name: &'static str,
    /// Description in a sentence.
    pub about: &'static str,
    pub(super) layouts: fn(Shape) -> Vec<Layout>,
}

/// All families, the more specific ones first.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "linux",
        about: "Linux's software BCH and Hamming, parity at the end of the OOB area",
        layouts: linux,
    },
    Family {
        name: "linux-interleaved",
        about: "Linux, parity after the data of each step",
        layouts: linux_interleaved,
    },
    Family {
        name: "omap",
        about: "TI OMAP, AM33xx, GPMC with ELM: ROM-code layout from OOB byte 2 on",
        layouts: omap,
    },
    Family {
        name: "omap-qnx",
        about: "OMAP under QNX: BCH4 over data and 4 OOB bytes each",
        layouts: omap_qnx,
    },
    Family {
        name: "gpmi",
        about: "Freescale/NXP i.MX GPMI: 10 bytes of metadata, bits packed",
        layouts: gpmi,
    },
    Family {
        name: "qcom",
        about: "Qualcomm NANDC: steps of 516 bytes, bad-block mark within the data",
        layouts: qcom,
    },
    Family {
        name: "brcm",
        about: "Broadcom brcmnand: parity at the end of each step's OOB bytes",
        layouts: brcm,
    },
    Family {
        name: "pmecc",
        about: "Atmel/Microchip PMECC: parity at the end of the OOB area",
        layouts: pmecc,
    },
    Family {
        name: "ifc",
        about: "Freescale IFC: parity in slots of 8 or 16 bytes from OOB byte 8 on",
        layouts: ifc,
    },
    Family {
        name: "mediatek",
        about: "MediaTek NFI: 8 OOB bytes and parity after each sector",
        layouts: mediatek,
    },
    Family {
        name: "sunxi",
        about: "Allwinner without randomizer: 4 OOB bytes and parity of each step",
        layouts: sunxi,
    },
    Family {
        name: "amlogic",
        about: "Amlogic: 2 OOB bytes and parity after each step",
        layouts: amlogic,
    },
    Family {
        name: "rockchip",
        about: "Rockchip without randomizer: 4 OOB bytes and parity after each step",
        layouts: rockchip,
    },
    Family {
        name: "denali",
        about: "Denali: parity after each step, bad-block mark passed over",
        layouts: denali,
    },
    Family {
        name: "marvell",
        about: "Marvell NFCv2 (PXA3xx, Armada): 2048 or 1024 bytes, spare bytes, 30 bytes of parity",
        layouts: marvell,
    },
];

/// Sizes of pages tried, the more common ones first.
pub const SHAPES: &[(u32, &[u32])] = &[
    (2048, &[64, 128, 112, 96]),
    (4096, &[128, 224, 256, 218, 216, 208, 232]),
    (512, &[16]),
    (8192, &[256, 448, 640, 744, 436, 512, 376]),
    (16384, &[1280, 1216, 1664, 1024, 512]),
];

impl Family {
    /// The family of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// Its layouts of a page.
    #[must_use]
    pub fn layouts(&self, shape: Shape) -> Vec<Layout> {
        let mut layouts = (self.layouts)(shape);
        layouts.retain(|layout| layout.map().is_ok());
        layouts
    }
}

/// All sizes of [`SHAPES`].
pub fn shapes() -> impl Iterator<Item = Shape> {
    SHAPES.iter().flat_map(|(page_bytes, oobs)| {
        oobs.iter().map(|oob_bytes| Shape {
            page_bytes: *page_bytes,
            oob_bytes: *oob_bytes,
        })
    })
}

/// Common parts of the layouts of one family.
struct Draft {
    shape: Shape,
    step_bytes: u32,
    code: Code,
    bit_order: BitOrder,
}

impl Draft {
    fn new(shape: Shape, step_bytes: u32, code: Code, bit_order: BitOrder) -> Self {
        Self {
            shape,
            step_bytes,
            code,
            bit_order,
        }
    }

    /// Bytes of a parity, or more than any page has if they don't fit.
    fn parity_bytes(&self) -> u32 {
        self.code.parity_bits().div_ceil(8)
    }

    fn steps(&self) -> u32 {
        self.shape.page_bytes.div_ceil(self.step_bytes)
    }

    /// OOB bytes of a step.
    fn share(&self) -> u32 {
        self.shape.oob_bytes / self.steps().max(1)
    }

    fn layout(&self, mask: Mask, placement: Placement) -> Layout {
        Layout {
            page_bytes: self.shape.page_bytes,
            oob_bytes: self.shape.oob_bytes,
            step_bytes: self.step_bytes,
            code: self.code,
            bit_order: self.bit_order,
            mask,
            placement,
        }
    }

    fn both_masks(&self, placement: &Placement) -> [Layout; 2] {
        [Mask::Erased, Mask::None].map(|mask| self.layout(mask, placement.clone()))
    }

    fn fits(&self, bytes_per_step: u32) -> bool {
        self.shape.page_bytes >= self.step_bytes && bytes_per_step * self.steps() <= self.shape.oob_bytes
    }
}

fn code14(strength: u32, polynomial: u32) -> Code {
    Code::Bch {
        strength,
        field: 14,
        polynomial,
    }
}

fn apart(ecc: Area) -> Placement {
    Placement::Apart {
        ecc,
        covers: None,
        is_right_aligned: false,
    }
}

/// A stream of data, `spare` covered bytes and parity, each step `pad` bytes after the one before.
fn stream(spare: u32, pad: u32) -> Placement {
    Placement::Inline {
        prefix: 0,
        spare,
        covered: spare,
        room: None,
        is_packed: false,
        pad,
        skip: None,
        swap: None,
    }
}

fn at_end(draft: &Draft) -> Area {
    let bytes = draft.parity_bytes() * draft.steps();
    Area::shared(draft.shape.oob_bytes - bytes, draft.shape.oob_bytes)
}

fn drafts(shape: Shape, steps: &[u32], strengths: &[u32], order: BitOrder) -> Vec<Draft> {
    let of_step = |step: &u32| {
        strengths
            .iter()
            .map(|strength| Draft::new(shape, *step, Code::bch(*strength, *step), order))
            .collect::<Vec<_>>()
    };
    let mut drafts: Vec<Draft> = steps.iter().flat_map(of_step).collect();
    drafts.retain(|draft| draft.fits(draft.parity_bytes()));
    drafts
}

fn linux(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (step, order) in [(256, Linux), (512, Linux), (256, SmartMedia), (512, SmartMedia)] {
        let draft = Draft::new(shape, step, Code::Hamming(order), HighestFirst);
        if !draft.fits(3) {
            continue;
        }
        let ecc = match (shape.page_bytes, shape.oob_bytes, step) {
            (512, 16, 256) => Area {
                ranges: vec![(0, 32), (48, 64)],
                stride: None,
            },
            _ => at_end(&draft),
        };
        layouts.push(draft.layout(Mask::None, apart(ecc)));
    }
    for draft in drafts(shape, &[512, 1024], STRENGTHS, HighestFirst) {
        layouts.extend(draft.both_masks(&apart(at_end(&draft))));
    }
    layouts
}

fn linux_interleaved(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for draft in drafts(shape, &[512, 1024], COMMON_STRENGTHS, HighestFirst) {
        let mut pads = vec![0, draft.share() - draft.parity_bytes()];
        pads.dedup();
        layouts.extend(
            pads.into_iter()
                .map(|pad| draft.layout(Mask::Erased, stream(0, pad))),
        );
    }
    layouts
}

fn omap(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (strength, stride) in [(4, 8), (8, 14), (16, 26), (4, 7), (8, 13)] {
        let draft = Draft::new(shape, 512, Code::bch(strength, 512), HighestFirst);
        let ecc = Area::strided(2, 2 + draft.parity_bytes(), stride);
        layouts.extend(draft.both_masks(&apart(ecc)));
    }
    for first in [1, 2] {
        let draft = Draft::new(shape, 512, Code::Hamming(Omap), HighestFirst);
        layouts.push(draft.layout(Mask::None, apart(Area::strided(first, first + 3, 3))));
    }
    layouts
}

fn omap_qnx(shape: Shape) -> Vec<Layout> {
    let draft = Draft::new(shape, 512, Code::bch(4, 512), HighestFirst);
    let first = 4 * draft.steps();
    let placement = Placement::Apart {
        ecc: Area::shared(first, first + 7 * draft.steps()),
        covers: Some(Area::strided(0, 4, 4)),
        is_right_aligned: true,
    };
    draft.both_masks(&placement).into()
}

fn gpmi(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for step in [512, 1024] {
        let room_bits = (shape.oob_bytes * 8).saturating_sub(80) / (shape.page_bytes / step).max(1);
        // Drivers take the largest even strength that fits, or the one that the chip asks for.
        let largest = (room_bits / Code::bch(1, step).parity_bits() / 2 * 2).min(62);
        let others = [2, 4, 6, 8, 14, 16, 18, 20, 24, 40];
        let smaller = others.into_iter().filter(|strength| *strength < largest);
        for strength in smaller.chain([largest].into_iter().filter(|strength| *strength > 0)) {
            let draft = Draft::new(shape, step, Code::bch(strength, step), LowestFirst);
            let placement = Placement::Inline {
                prefix: 10,
                spare: 0,
                covered: 0,
                room: None,
                is_packed: true,
                pad: 0,
                skip: None,
                swap: Some((shape.page_bytes, 0)),
            };
            layouts.push(draft.layout(Mask::None, placement));
        }
    }
    layouts
}

fn qcom(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    // Strength, bytes for the parity, bytes of the mark (twice that on a 16-bit bus), bytes after it.
    for (strength, room, mark, pad) in [(8, 13, 1, 2), (4, 7, 1, 4), (8, 14, 2, 0), (4, 8, 2, 2)] {
        let draft = Draft::new(shape, 516, Code::bch(strength, 516), HighestFirst);
        let word = 516 + room + mark + pad;
        let Some(start) = shape
            .page_bytes
            .checked_sub(word * (draft.steps() - 1))
            .filter(|start| *start < 516)
        else {
            continue;
        };
        let placement = Placement::Inline {
            prefix: 0,
            spare: 0,
            covered: 0,
            room: Some(room),
            is_packed: false,
            pad,
            skip: Some(Skip {
                start,
                end: start + mark,
                is_in_each: true,
            }),
            swap: None,
        };
        layouts.push(draft.layout(Mask::None, placement));
    }
    layouts
}

fn brcm(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for order in [Linux, SmartMedia, Omap] {
        let draft = Draft::new(shape, 512, Code::Hamming(order), HighestFirst);
        layouts.push(draft.layout(Mask::None, apart(Area::strided(6, 9, 16))));
    }
    for (step, strength) in [512, 1024]
        .into_iter()
        .flat_map(|step| COMMON_STRENGTHS.iter().map(move |strength| (step, *strength)))
    {
        let older = Code::Bch {
            strength,
            field: 13,
            polynomial: 0x201b,
        };
        for code in [code14(strength, THIRD_POLYNOMIAL), older] {
            let draft = Draft::new(shape, step, code, HighestFirst);
            let parity_bits = code.parity_bits();
            let mut shares = vec![draft.share(), 16 * step / 512];
            shares.dedup();
            for share in shares {
                if share * 8 <= parity_bits || !draft.fits(share) || (step == 1024 && code == older) {
                    continue;
                }
                let stride = Some(share * 8);
                // Odd parities begin in the middle of a byte, and the code covers everything before them.
                let covered_bits = share * 8 - parity_bits.next_multiple_of(4);
                let first = share * 8 - draft.parity_bytes() * 8;
                let placement = Placement::Apart {
                    ecc: Area {
                        ranges: vec![(first, share * 8)],
                        stride,
                    },
                    covers: (covered_bits > 0).then(|| Area {
                        ranges: vec![(0, covered_bits)],
                        stride,
                    }),
                    is_right_aligned: true,
                };
                layouts.push(draft.layout(Mask::None, placement));
            }
        }
    }
    layouts
}

fn pmecc(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for strength in [2, 4, 8, 12, 24, 32] {
        let codes = [
            (512, Code::bch(strength, 512)),
            (1024, code14(strength, SECOND_POLYNOMIAL)),
        ];
        for (step, code) in codes {
            let draft = Draft::new(shape, step, code, LowestFirst);
            if !draft.fits(draft.parity_bytes()) {
                continue;
            }
            let bytes = draft.parity_bytes() * draft.steps();
            let first = shape.oob_bytes - bytes;
            for first in if first > 2 { vec![first, 2] } else { vec![first] } {
                layouts.extend(draft.both_masks(&apart(Area::shared(first, first + bytes))));
            }
        }
    }
    layouts
}

fn ifc(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (strength, step, slot) in [(4, 512, 8), (8, 512, 16), (24, 1024, 64), (40, 1024, 128)] {
        let draft = Draft::new(shape, step, Code::bch(strength, step), HighestFirst);
        layouts.extend(draft.both_masks(&apart(Area::strided(8, 8 + draft.parity_bytes(), slot))));
    }
    layouts
}

fn mediatek(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (step, strength) in [512, 1024]
        .into_iter()
        .flat_map(|step| COMMON_STRENGTHS.iter().map(move |strength| (step, *strength)))
    {
        let code = match step {
            512 => Code::bch(strength, 512),
            _ => code14(strength, SECOND_POLYNOMIAL),
        };
        let draft = Draft::new(shape, step, code, LowestFirst);
        let used = 8 + draft.parity_bytes();
        if !draft.fits(used) {
            continue;
        }
        let mut pads = vec![draft.share() - used, 0];
        pads.dedup();
        for (pad, covered) in pads.into_iter().flat_map(|pad| [(pad, 8), (pad, 1)]) {
            // The mark takes the place of data in the last sector, which is in its first spare byte.
            let last = (draft.steps() - 1) * (step + used + pad) + step;
            let placement = Placement::Inline {
                prefix: 0,
                spare: 8,
                covered,
                room: None,
                is_packed: false,
                pad,
                skip: None,
                swap: (shape.page_bytes < last).then_some((shape.page_bytes, last)),
            };
            layouts.push(draft.layout(Mask::None, placement));
        }
    }
    layouts
}

fn sunxi(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (step, strength) in [1024, 512]
        .into_iter()
        .flat_map(|step| [16, 24, 28, 32, 40, 48, 56, 60, 64].map(|strength| (step, strength)))
    {
        let draft = Draft::new(shape, step, code14(strength, THIRD_POLYNOMIAL), LowestFirst);
        let stride = 4 + draft.parity_bytes().next_multiple_of(2);
        if !draft.fits(stride) {
            continue;
        }
        let placement = Placement::Apart {
            ecc: Area::strided(4, 4 + draft.parity_bytes(), stride),
            covers: Some(Area::strided(0, 4, stride)),
            is_right_aligned: false,
        };
        layouts.push(draft.layout(Mask::None, placement));
    }
    layouts
}

fn amlogic(shape: Shape) -> Vec<Layout> {
    let drafts = [
        (512, 8),
        (1024, 8),
        (1024, 16),
        (1024, 24),
        (1024, 30),
        (1024, 40),
        (1024, 60),
    ]
    .map(|(step, strength)| Draft::new(shape, step, code14(strength, 0x402b), HighestFirst));
    let fitting = drafts.iter().filter(|draft| draft.fits(2 + draft.parity_bytes()));
    fitting
        .map(|draft| draft.layout(Mask::Erased, stream(2, 0)))
        .collect()
}

fn rockchip(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (strength, order) in [16, 24]
        .into_iter()
        .flat_map(|strength| [(strength, HighestFirst), (strength, LowestFirst)])
    {
        for polynomial in [0x402b, SECOND_POLYNOMIAL, THIRD_POLYNOMIAL] {
            let draft = Draft::new(shape, 1024, code14(strength, polynomial), order);
            if draft.fits(4 + draft.parity_bytes()) {
                layouts.extend(draft.both_masks(&stream(4, 0)));
            }
        }
    }
    layouts
}

fn denali(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    for (step, strength) in [(512, 8), (512, 15), (1024, 8), (1024, 16), (1024, 24)] {
        for (order, marked) in [HighestFirst, LowestFirst]
            .into_iter()
            .flat_map(|order| [(order, 0), (order, 2), (order, 8)])
        {
            let draft = Draft::new(shape, step, Code::bch(strength, step), order);
            let room = draft.code.parity_bits().div_ceil(16) * 2;
            let skip = Skip {
                start: shape.page_bytes,
                end: shape.page_bytes + marked,
                is_in_each: false,
            };
            let placement = Placement::Inline {
                prefix: 0,
                spare: 0,
                covered: 0,
                room: Some(room),
                is_packed: false,
                pad: 0,
                skip: (marked > 0).then_some(skip),
                swap: None,
            };
            if draft.fits(room) {
                layouts.push(draft.layout(Mask::None, placement));
            }
        }
    }
    layouts
}

fn marvell(shape: Shape) -> Vec<Layout> {
    let mut layouts = Vec::new();
    let code = Code::Bch {
        strength: 16,
        field: 15,
        polynomial: 0x8003,
    };
    for (step, spare) in [(2048, 32), (1024, 0), (2048, 24), (1024, 32)] {
        for order in [HighestFirst, LowestFirst] {
            let draft = Draft::new(shape, step, code, order);
            if draft.fits(spare + 30) {
                layouts.extend(draft.both_masks(&stream(spare, 0)));
            }
        }
    }
    layouts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_is_possible_and_reads_as_it_is_written() {
        let mut count = 0;
        for shape in shapes() {
            for family in FAMILIES {
                for layout in family.layouts(shape) {
                    let text = layout.to_string();
                    assert_eq!(
                        layout.map().and_then(|map| map.check_overlaps()),
                        Ok(()),
                        "{} {text}",
                        family.name
                    );
                    assert_eq!(Layout::parse(&text, None).unwrap(), layout, "{text}");
                    count += 1;
                }
            }
        }
        assert!((1000..10_000).contains(&count), "{count}");
    }

    #[test]
    fn every_family_has_layouts_of_a_common_page() {
        for family in FAMILIES {
            let has = shapes().any(|shape| !family.layouts(shape).is_empty());
            assert!(has, "{}", family.name);
            assert_eq!(Family::named(family.name).unwrap().name, family.name);
        }
    }
}
