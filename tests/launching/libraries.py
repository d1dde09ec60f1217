"""Imports the libraries of all commands, and nothing of the product."""

import contextlib
import gc
import importlib
import io
import logging
import warnings

LIBRARIES = (
    "awkward", "deepspeed.runtime.zero.muon.muon_optimizer", "fastwarc", "gigatoken",
    "mwparserfromhell", "numba", "PIL.ImageDraw", "PIL.ImageFont",
    "pandas", "pyarrow.parquet", "pytest", "resiliparse.extract.html2text",
    "scipy.stats", "sklearn.metrics", "tokenizers",
    "torch._dynamo", "torch.distributed.run", "torch.utils.tensorboard",
    "transformers.models.albert.modeling_albert", "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto", "transformers.models.bert.modeling_bert",
    "transformers.models.electra.modeling_electra", "transformers.models.roberta.modeling_roberta",
)  # fmt: skip

logging.disable(logging.WARNING)
with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
    warnings.simplefilter("ignore")
    for name in LIBRARIES:
        importlib.import_module(name)
logging.disable(logging.NOTSET)
logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
# A collection in a forked child would visit every object, and so copy its page.
gc.collect()
gc.freeze()
