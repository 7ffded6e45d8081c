"""Prototypes to share: a folder with README.md, config.json and model.safetensors, here or on the Hugging Face hub."""

import re
from pathlib import Path

from panther.errors import InputError, require_packages
from panther.storage.files import first_sentence

MODEL, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
ENDINGS = (".safetensors", ".npy", ".pkl", ".pt", ".h5")


def is_hub_id(name: Path | str) -> bool:
    """Whether it reads ORG/NAME and nothing of that name lies here: neither the file nor its folder."""
    text, path = Path(name).as_posix(), Path(name)
    is_here = path.exists() or path.parent.exists()
    return bool(HUB_ID.fullmatch(text)) and not text.lower().endswith(ENDINGS) and not is_here


def find_shared(name: Path | str) -> Path:
    """File of the prototypes: in a folder, or downloaded from the hub (from its cache without a network)."""
    path = Path(name)
    if not is_hub_id(name):
        if path.is_dir() and not (path / MODEL).exists():
            raise InputError(f"{path}: found a folder without {MODEL}, expected one of `panther share`")
        return path / MODEL if path.is_dir() else path
    require_packages("encoders", "huggingface_hub")
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    repository = path.as_posix()
    try:
        get_hf_file_metadata(
            hf_hub_url(repository, MODEL)
        )  # without a network it fails at once, the download after 30 s
        return Path(hf_hub_download(repository, MODEL))
    except Exception as error:  # of the hub, the network, or a name that is not valid
        cached = try_to_load_from_cache(repository, MODEL)
        if isinstance(cached, str):
            return Path(cached)
        raise InputError(f"{repository}: no such file here, and not on the hub ({first_sentence(error)})") from error


def push_folder(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload a folder to the hub, creating the repository if need be; returns its address."""
    require_packages("encoders", "huggingface_hub")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(folder_path=folder, repo_id=repository, commit_message="Prototypes of panther-wsi")
    except (HfHubHTTPError, OSError, ValueError) as error:  # also a name, token or answer that is not valid
        raise InputError(
            f"{repository}: the hub refused the upload ({first_sentence(error)}); `hf auth login` logs in"
        ) from error
    return str(commit.repo_url)
