"""A model from the Hugging Face Hub, through huggingface_hub: HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE apply."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError
from huggingface_hub.utils import disable_progress_bars, logging

from engine.errors import ModelError
from engine.model.config import ModelConfig
from kvchat.catalogue.errors import Interrupted
from kvchat.catalogue.files import is_model_file
from kvchat.catalogue.progress import OnProgress, Progress, watching
from kvchat.catalogue.space import is_full, require_space

HTTP_ERROR: type[BaseException] = HfHubHTTPError.__mro__[1]
"""The base of all errors of the HTTP client, whichever client this version of the library uses."""


def download(repository: str, model: Path, on_progress: OnProgress) -> None:
    """Download the files of a model into a folder; what an earlier call left there is continued.

    Raises ModelError when the repository is not a model that can be used, Interrupted when the Hub cannot be reached.
    """
    constants.HF_HUB_DISABLE_TELEMETRY = True  # it would send which libraries and coding agents run here
    disable_progress_bars()
    logging.set_verbosity_error()
    on_progress(Progress("asking the Hub"))
    api = HfApi(library_name="kvchat")
    where = f"{repository} on {api.endpoint}"
    try:
        info = api.model_info(repository, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or () if is_model_file(file.rfilename)}
        if "config.json" not in sizes or not any(name.endswith(".safetensors") for name in sizes):
            raise ModelError(f"{where} has no config.json with model*.safetensors, so it is not a model to use here")
        hf_hub_download(repository, "config.json", revision=info.sha, local_dir=model)
        ModelConfig.read(model)
        total = sum(sizes.values())
        require_space(model, total - sum(file.stat().st_size for file in model.rglob("*") if file.is_file()))
        with watching(model, sum, total, on_progress):
            snapshot_download(repository, revision=info.sha, local_dir=model, allow_patterns=list(sizes))
    except OfflineModeIsEnabled:
        raise ModelError(f"{where} was not asked for, because HF_HUB_OFFLINE is set") from None
    except GatedRepoError:
        raise ModelError(f"{where} is gated: accept its terms there and set HF_TOKEN to your token") from None
    except RepositoryNotFoundError:
        raise ModelError(f"{where} does not exist or is private (then set HF_TOKEN to your token)") from None
    except (HTTP_ERROR, OSError, RuntimeError) as error:  # RuntimeError: what hf_xet raises for all of its failures
        if isinstance(error, OSError) and is_full(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Interrupted(f"could not download {where} ({reason}); pull it again to continue") from None
    partial = [name for name, size in sizes.items() if (model / name).stat().st_size != size]
    if partial:
        raise ModelError(f"{where} gave only a part of {partial[0]}; pull it again")
    shutil.rmtree(model / ".cache", ignore_errors=True)
