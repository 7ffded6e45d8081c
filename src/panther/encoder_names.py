"""One encoder has many names: what TRIDENT, STAMP, CLAM, timm and the Hugging Face hub call it, and what it is called here."""

import re

# Names are compared in small letters, `_` as `-`, and without the prefixes below. Networks of one name that give another number of features
# (ResNet-50 cut after its third block or whole; Virchow's class token with or without the mean of the patches) are told apart by that number,
# which is compared wherever names are.
ALIASES: dict[str, tuple[str, ...]] = {
    "lite0": ("efficientnet-lite0", "tf-efficientnet-lite0", "tf-efficientnet-lite0.in1k"),
    "resnet50": ("resnet50-trunc", "resnet50.tv-in1k", "timm/resnet50.tv-in1k", "resnet50-baseline", "resnet-50"),
    "uni": ("uni-v1", "uni1", "mahmood-uni", "mahmoodlab/uni"),
    "uni2": ("uni-v2", "uni2-h", "uni-2", "mahmood-uni2", "mahmoodlab/uni2-h"),
    "conch": ("conch-v1", "conch1", "mahmood-conch", "mahmoodlab/conch", "conch-vit-b-16"),
    "conch-v1.5": ("conch-v15", "conch1-5", "conchv1-5", "conch15", "mahmood-conch1-5", "mahmoodlab/conchv1-5"),
    "ctranspath": ("transpath", "xiyue-wang/transpath"),
    "chief-ctranspath": ("ctranspath-chief", "chief"),
    "virchow": ("virchow-full", "virchow-v1", "virchow1", "paige-ai/virchow"),
    "virchow2": ("virchow-v2", "virchow2-full", "virchow2-cls", "paige-ai/virchow2"),
    "gigapath": ("prov-gigapath", "prov-gigapath/prov-gigapath"),
    "h-optimus-0": ("hoptimus0", "hoptimus-0", "h-optimus0", "bioptimus/h-optimus-0"),
    "h-optimus-1": ("hoptimus1", "hoptimus-1", "h-optimus1", "bioptimus/h-optimus-1"),
    "h0-mini": ("h0mini", "h-optimus-0-mini", "bioptimus/h0-mini"),
    "phikon": ("phikon-v1", "owkin/phikon"),
    "phikon-v2": ("phikonv2", "phikon2", "owkin/phikon-v2"),
    "musk": ("xiangjx/musk",),
    "hibou-l": ("histai/hibou-l",),
    "hibou-b": ("histai/hibou-b",),
    "midnight": ("midnight12k", "midnight-12k", "kaiko-ai/midnight"),
    "lunit-vits8": ("1aurent/vit-small-patch8-224.lunit-dino", "vit-small-patch8-224.lunit-dino"),
    "kaiko-vits8": ("1aurent/vit-small-patch8-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vits16": ("1aurent/vit-small-patch16-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitb8": ("1aurent/vit-base-patch8-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitb16": ("1aurent/vit-base-patch16-224.kaiko-ai-towards-large-pathology-fms",),
    "kaiko-vitl14": ("1aurent/vit-large-patch14-reg4-224.kaiko-ai-towards-large-pathology-fms",),
    "keep": ("astaxanthin/keep",),
    "mstar": ("wangyihui/mstar",),
    "plip": ("vinid/plip",),
    "dino-bloom": ("dinobloom", "1aurent/dinobloom"),
    **{
        f"dinov2-{size}{registers}": (
            f"vit-{size}-patch14-{reg4}dinov2.lvd142m",
            f"timm/vit-{size}-patch14-{reg4}dinov2.lvd142m",
            f"facebook/dinov2-{'with-registers-' if registers else ''}{size}",
            f"dinov2-vit{size[0]}14{registers}",
        )
        for size in ("small", "base", "large", "giant")
        for registers, reg4 in (("", ""), ("-reg", "reg4-"))
    },
}

_PREFIXES = ("https://huggingface.co/", "hf-hub:", "timm:")
_STAMP_HASH = re.compile(r"-[0-9a-f]{8}$")  # STAMP's folders: the hash of its code behind the extractor's name
_NAMES = {alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)}


def canonical(name: str) -> str:
    """Name of an encoder here; one that is not known stays as it is, in small letters and with `-` for `_`.

    >>> canonical("uni_v1"), canonical("hf-hub:MahmoodLab/UNI"), canonical("mahmood-uni-1a2b3c4d")
    ('uni', 'uni', 'uni')
    """
    name, plus, stain = name.partition("+")  # patches whose stains were normalised first give other features
    plain = name.strip().casefold().replace("_", "-")
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    known = _NAMES.get(plain) or _NAMES.get(_STAMP_HASH.sub("", plain)) or plain
    return f"{known}{plus}{stain.strip().casefold()}"


def encoder_words(name: str | None) -> str:
    """What to call an encoder in a sentence."""
    return f"the encoder {name!r}" if name else "an encoder that is not named"


def same_encoder(one: str | None, other: str | None) -> bool:
    """Whether two names may be one encoder; a file that names none may be of any."""
    return not one or not other or canonical(one) == canonical(other)
