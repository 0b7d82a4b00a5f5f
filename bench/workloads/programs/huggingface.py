"""Transformers: fine-tuning by its Trainer with PEFT, `generate`, and its scheduler that batches continuously."""

# mypy: disable-error-code="import-not-found, no-untyped-call, misc"
import logging
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
import transformers

from orion.bench.workloads.on_gpu import OnGPU
from orion.bench.workloads.programs import options as of
from orion.bench.workloads.programs.driven import refuse_threads
from orion.bench.workloads.programs.trainer import TrainerProgram
from orion.errors import Unavailable

VOCABULARY = 32_000
HEAD = 64
CACHE_BLOCKS, TOKENS_TOGETHER = 64, 4096  # of continuous batching; by default it takes most of the GPU's free memory

GenerateT = TypeVar("GenerateT", bound=of.Generate)


def llama(options: of.Llama, length: int) -> Any:
    """Return a Llama with random weights, in bf16."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=options.width,
        intermediate_size=options.width * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // HEAD,
        num_key_value_heads=options.width // HEAD,
        max_position_embeddings=length,
    )
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


class _Batches(torch.utils.data.IterableDataset):
    """The same batch for ever; each step of the loop takes an item of its driver."""

    def __init__(self, tokens: Any) -> None:
        self.items: Iterator[None] = iter(())
        self._batch = {"input_ids": tokens, "labels": tokens}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _ in self.items:
            yield self._batch


class PeftFinetuning(TrainerProgram[of.PeftFinetuning]):
    """Fine-tunes adapters (LoRA) of a Llama."""

    unit = "sequences"

    def _build(self, options: of.PeftFinetuning) -> None:
        import peft

        refuse_threads(self._place)
        self.amount = float(options.batch)
        model = llama(options, options.length)
        config = peft.LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
        data = _Batches(torch.randint(0, VOCABULARY, (options.batch, options.length)))
        folder = tempfile.mkdtemp(prefix="orion-trainer-")  # the Trainer wants one, and writes nothing to it
        trainer = transformers.Trainer(
            model=peft.get_peft_model(model, config),
            args=_arguments(folder, options),
            train_dataset=data,
        )
        # Without workers and collation: the data is on the GPU, and one item is a whole batch.
        trainer.get_train_dataloader = lambda: torch.utils.data.DataLoader(data, batch_size=None)

        def run(items: Iterator[None]) -> None:
            data.items = items
            trainer.train()

        self._run = run


def _arguments(folder: str, options: of.PeftFinetuning) -> Any:
    return transformers.TrainingArguments(
        output_dir=folder,
        max_steps=1_000_000_000,
        per_device_train_batch_size=options.batch,
        gradient_checkpointing=options.checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        bf16=True,
    )


class _Generating(OnGPU[GenerateT], Generic[GenerateT]):
    """A Llama that generates the same number of tokens for each request."""

    unit = "requests"

    def _build(self, options: GenerateT) -> None:
        self._model = llama(options, options.prompt + options.tokens).eval()
        self._model.generation_config = transformers.GenerationConfig(
            max_new_tokens=options.tokens,
            min_new_tokens=options.tokens,
            do_sample=False,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
        self._prompts = torch.randint(3, VOCABULARY, (options.batch, options.prompt))


class Generate(_Generating[of.Generate]):
    """`generate`, eager: the CPU launches each kernel of each token."""

    def _mode(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.inference_mode()
        return context

    def step(self) -> None:
        """Serve one request, a batch of prompts."""
        self._model.generate(self._prompts, attention_mask=torch.ones_like(self._prompts))
        self.trace.mark()
        self._wait()


class ContinuousBatching(_Generating[of.ContinuousBatching]):
    """`generate_batch`: a thread of Transformers batches the requests that are in progress."""

    def _build(self, options: of.ContinuousBatching) -> None:
        refuse_threads(self._place)
        super()._build(options)
        self.amount = float(options.batch)
        self._inputs = self._prompts.tolist()
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)  # it would warn in each step
        self._batching = transformers.ContinuousBatchingConfig(
            num_blocks=CACHE_BLOCKS, max_batch_tokens=TOKENS_TOGETHER
        )

    def step(self) -> None:
        """Submit all prompts, and wait until each has its tokens."""
        answers = self._model.generate_batch(
            self._inputs,
            generation_config=self._model.generation_config,
            continuous_batching_config=self._batching,
            persistent_manager=True,
        )
        failed = [str(answer.error) for answer in answers.values() if answer.error]
        if failed or len(answers) < len(self._inputs):
            raise Unavailable(f"{len(answers) - len(failed)} of {len(self._inputs)} prompts were answered {failed[:1]}")
        self._wait()
