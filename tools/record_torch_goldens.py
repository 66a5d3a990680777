"""Record what PyTorch's trainers log, for the profiler's tests: `python tools/record_torch_goldens.py [FOLDER]`.

Every file is the standard output and error of a real run, as a task's log has it. It needs `torch`, `lightning`,
`fastai` and `transformers` with `accelerate`, and takes a minute; a GPU is not needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "COLUMNS": "120", "PYTHONWARNINGS": "ignore"}
"""Warnings would have paths of the machine."""

OUT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "profiler" / "text"

LIGHTNING = """
import sys, time
import lightning, torch
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def step(self, batch):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def training_step(self, batch, index):
        time.sleep(0.02)
        loss = self.step(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.step(batch), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

lightning.seed_everything(7)
x = torch.randn(320, 8)
data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
loaders = [torch.utils.data.DataLoader(data, batch_size=16) for _ in range(2)]
bar = {"tqdm": TQDMProgressBar, "rich": RichProgressBar}[sys.argv[1]]()
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", callbacks=[bar], logger=False, enable_checkpointing=False)
trainer.fit(Net(), *loaders)
"""

TRAINER = """
import sys
import torch, transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

transformers.set_seed(7)
generator = torch.Generator().manual_seed(7)
rows = torch.randint(5, 100, (320, 16), generator=generator)
data = [{"input_ids": row, "labels": int(row[0] > 50)} for row in rows]
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
arguments = TrainingArguments(
    output_dir=sys.argv[1], max_steps=60, logging_steps=10, eval_steps=20, eval_strategy="steps", save_strategy="no",
    per_device_train_batch_size=16, per_device_eval_batch_size=64, report_to=[], use_cpu=True,
    disable_tqdm=sys.argv[2] == "lines",
)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, eval_dataset=data[:64]).train()
"""

FASTAI = """
import contextlib, sys
import torch
from fastai.basics import *
from fastai.callback.progress import *

torch.manual_seed(7)
x = torch.randn(640, 8)
data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
splits = [torch.utils.data.Subset(data, range(*ends)) for ends in ((0, 512), (512, 640))]
loaders = DataLoaders.from_dsets(*splits, bs=32)
learner = Learner(loaders, nn.Linear(8, 2), loss_func=nn.CrossEntropyLoss(), metrics=accuracy)
with learner.no_bar() if sys.argv[1] == "lines" else contextlib.nullcontext():
    learner.fit(4, 0.01)
"""


def main() -> int:
    """Run all programs and write the files; returns the exit code."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record(LIGHTNING, ("tqdm",), out / "lightning_tqdm.log")
        record(LIGHTNING, ("rich",), out / "lightning_rich.log")
        record(TRAINER, (folder, "bars"), out / "trainer_bars.log")
        record(TRAINER, (folder, "lines"), out / "trainer_lines.log")
        record(FASTAI, ("bars",), out / "fastai_bars.log")
        record(FASTAI, ("lines",), out / "fastai_lines.log")
    return 0


def record(program: str, arguments: Sequence[str], path: Path) -> None:
    """Run a program, and write all that it prints. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-u", "-c", program, *arguments]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False)
    path.write_bytes(done.stdout)
    done.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
