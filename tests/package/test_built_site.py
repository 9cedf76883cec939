"""The built site, as a reader meets it: search and pictures. `.ci/run` builds the site first."""

import re

import pytest

from tests.support import site_search
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
SITE = DOCS / "build/html"
# what users of Keras type into the search, and the page that answers
QUESTIONS = {
    "model.fit": "tutorials/training",
    "pandas": "guides/tables",
    "ONNX": "guides/onnx",
    "Hugging Face": "guides/pretrained",
    "mixed precision": "guides/precision",
    "EMA": "guides/precision",
    "gradient accumulation": "guides/precision",
    "custom loss": "guides/losses_metrics",
    "custom metric": "guides/losses_metrics",
    "multiple outputs": "guides/several_outputs",
    "class weights": "guides/several_outputs",
    "learning rate schedule": "reference/api/schedules",
    "early stopping": "tutorials/training",
    "resume training": "tutorials/training",
    "TPU": "guides/colab_tpu",
    "accelerator": "guides/accelerator_speed",
    "multiple GPUs": "tutorials/several_devices",
    "save model": "guides/open_files",
    "load h5": "guides/open_files",
    "transfer learning": "guides/transfer",
    "freeze layers": "tutorials/fine_tuning",
    "tokenizer": "guides/tokenizers",
    "time series": "guides/time_series",
    "stateful LSTM": "guides/time_series",
    "serving": "guides/serving",
    "NaN loss": "guides/find_nan",
    "reproducible seed": "explanation/keys",
    "replace head": "guides/surgery",
    "model surgery": "guides/surgery",
    "LoRA": "guides/adapters",
    "PEFT adapter": "guides/adapters",
    "intermediate activations": "guides/look_inside",
    "Grad-CAM": "guides/look_inside",
    "KV cache": "guides/attention_cache",
}
# further questions, each with words of its own
MORE_QUESTIONS = {
    "dataframe": "guides/tables",
    "sentence embeddings": "guides/pretrained_encoders",
    "Whisper": "guides/pretrained_encoders",
    "compare models": "guides/compare_models",
    "beam search": "guides/generate",
    "categorical features": "guides/tables",
    "model.compile": "guides/where",
    "keras.backend": "guides/where",
    "float16": "guides/precision",
    "imbalanced data": "guides/several_outputs",
    "checkpoint": "tutorials/training",
    "multi-gpu": "tutorials/several_devices",
    "pretrained model": "guides/transfer",
    "ImageNet": "guides/transfer",
    "Llama": "guides/pretrained",
    "GGUF": "guides/pretrained",
    "forecasting": "guides/time_series",
    "deploy": "guides/serving",
    "out of memory": "guides/planning",
    "random seed": "explanation/keys",
    "custom layer": "tutorials/custom_layers",
    "custom training loop": "tutorials/custom_loops",
    "data augmentation": "guides/augment",
    "functional API": "tutorials/graph",
    "intermediate output": "tutorials/graph",
    "masking": "explanation/masks",
    "hyperparameter tuning": "guides/populations",
    "distillation": "guides/distill",
    "install": "getting_started/installation",
    "layers.pop": "guides/surgery",
    "insert layer": "guides/surgery",
    "skip connection": "guides/surgery",
    "integrated gradients": "guides/look_inside",
    "per-sample gradients": "guides/private_training",
    "hidden states": "guides/look_inside",
    "activation patching": "guides/look_inside",
    "chat template": "guides/tokenizers",
    "instruction tuning": "guides/finetune",
    "scikit-learn": "guides/scikit_learn",
    "fkeras or Flax": "explanation/libraries",
    "recipes": "guides/recipes",
}
# what people of a field type, and the pages of which one comes first
FIELD_QUESTIONS = {
    "optax MultiSteps": ("guides/optax_orbax_grain",),
    "gradient clipping": ("reference/api/optimizers",),
    "cast model to bfloat16": ("guides/precision",),
    "change dtype of a model": ("guides/precision",),
    "MAML": ("guides/recipes",),
    "hypernetwork": ("guides/recipes",),
    "LBFGS": ("guides/recipes",),
    "neural ODE": ("guides/recipes",),
    "deep equilibrium": ("guides/recipes",),
    "Bayesian neural network": ("guides/recipes",),
    "ensemble": ("guides/populations",),
    "uncertainty ensemble": ("guides/populations", "guides/recipes"),
    "graph neural network": ("guides/recipes",),
    "segment_sum": ("guides/recipes",),
    "PPO": ("guides/recipes",),
    "reinforcement learning scan": ("guides/recipes",),
    "physics informed": ("guides/recipes",),
    "second derivative hessian": ("guides/recipes", "guides/look_inside"),
    "recommender": ("guides/recipes",),
    "two tower": ("guides/recipes",),
    "contrastive loss": ("guides/losses_metrics",),
    "in-batch negatives": ("guides/losses_metrics", "guides/recipes"),
    "probabilistic forecast": ("guides/time_series",),
    "quantile loss": ("guides/losses_metrics",),
    "CTC": ("guides/losses_metrics",),
    "speech recognition": ("guides/pretrained_encoders", "guides/examples"),
    "mel spectrogram": ("reference/api/layers_preprocessing",),
    "dice loss": ("guides/losses_metrics",),
    "U-Net": ("guides/recipes",),
    "segmentation": ("guides/recipes",),
    "unknown image size": ("guides/recipes", "explanation/differences"),
    "class imbalance": ("guides/several_outputs", "guides/losses_metrics"),
    "missing values NaN": ("guides/tables",),
    "k-fold cross validation": ("guides/recipes", "guides/scikit_learn"),
    "GridSearchCV": ("guides/scikit_learn",),
    "scikit-learn wrapper": ("guides/scikit_learn",),
    "parquet": ("guides/data",),
    "memmap large dataset": ("guides/data",),
    "streaming data generator": ("guides/data",),
    "PyTorch DataLoader": ("guides/data",),
    "master weights": ("guides/precision",),
    "reduce learning rate on plateau": ("reference/api/callbacks",),
    "resume training": ("tutorials/training",),
    "save weights": ("guides/open_files",),
    "print weights": ("guides/printing",),
    "vmap over models": ("guides/populations",),
    "per-sample gradients": ("guides/private_training",),
    "saliency map": ("guides/look_inside",),
    "confusion matrix": ("reference/api/utils",),
    "mask language model": ("tutorials/text_transformer",),
}
# no page has all words of a question
INCOMPLETE = {
    "PINN of the Burgers equation": "guides/recipes",
    "learnrate schedule early stopping": "tutorials/training",
    "quantization of yolov8": "guides/quantization",
    "distilation": "guides/distill",
}


def _newest(folder):
    pages = (path for path in folder.rglob("*.md") if "build" not in path.parts)
    return max(path.stat().st_mtime for path in pages if "api" not in path.parts)


def _missing():
    """The reason to skip, or ""."""
    index = SITE / "searchindex.js"
    if not index.exists():
        return "the site is not built: python -m sphinx -b html docs docs/build/html"
    if index.stat().st_mtime < _newest(DOCS):
        return "docs/build is older than a page: build the site again"
    return ""


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


@pytest.mark.skipif(site_search.NODE is None, reason="the search is JavaScript: node is missing")
@pytest.mark.parametrize(("questions", "least"), [(QUESTIONS, 27), (MORE_QUESTIONS, 34)])
def test_the_search_shows_the_wanted_page_first_or_second(questions, least):
    found = site_search.found_pages(SITE, list(questions))
    wrong = {
        question: pages[:3]
        for (question, wanted), pages in zip(questions.items(), found, strict=True)
        if wanted not in pages[:2]
    }
    assert len(questions) - len(wrong) >= least, wrong


@pytest.mark.skipif(site_search.NODE is None, reason="the search is JavaScript: node is missing")
def test_the_search_shows_the_page_of_a_field_first():
    found = site_search.found_pages(SITE, list(FIELD_QUESTIONS))
    wrong = {
        question: pages[:3]
        for (question, wanted), pages in zip(FIELD_QUESTIONS.items(), found, strict=True)
        if not pages or pages[0] not in wanted
    }
    assert len(wrong) <= len(FIELD_QUESTIONS) // 10, wrong


@pytest.mark.skipif(site_search.NODE is None, reason="the search is JavaScript: node is missing")
def test_a_question_with_an_unknown_word_has_an_answer():
    found = site_search.found_pages(SITE, list(INCOMPLETE))
    for (question, wanted), pages in zip(INCOMPLETE.items(), found, strict=True):
        assert wanted in pages[:3], f"{question}: {pages[:5]}"


def test_the_questions_name_pages():
    for page in {*QUESTIONS.values(), *MORE_QUESTIONS.values()}:
        assert (SITE / f"{page}.html").is_file(), page


def test_pictures_have_a_text():
    pictures = [
        (path.relative_to(SITE), picture)
        for path in SITE.rglob("*.html")
        for picture in re.findall(r"<img\b[^>]*>", path.read_text())
    ]
    assert len(pictures) >= 5  # drawings of models are SVG in the page
    for path, picture in pictures:
        text = re.search(r'\balt="([^"]*)"', picture)
        assert text and text[1] and not text[1].endswith((".png", ".svg")), f"{path}: {picture}"


def test_no_variable_of_a_page_is_left():
    for path in SITE.rglob("*.html"):
        article = path.read_text().partition("<article")[2]
        # programs contain templates of chats
        text = re.sub(r"<pre>.*?</pre>", "", article, flags=re.S)
        assert "{{" not in text, path
