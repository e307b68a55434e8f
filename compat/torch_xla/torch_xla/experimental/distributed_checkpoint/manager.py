"""Checkpoints by step in a folder."""

import queue
import shutil
import threading
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp

from ... import _XLAC
from ._helpers import _sharded_cpu_state_dict
from .planners import SPMDLoadPlanner, SPMDSavePlanner

_DONE = ".metadata"


class CheckpointManager:
    """Saves every `save_interval` steps, keeps the last `max_to_keep` (0: all).

    With `chkpt_on_preemption` a SIGTERM does not end the process: the next step is saved too.
    """

    def __init__(
        self,
        path: Any,
        save_interval: int,
        max_to_keep: int = 0,
        max_pending_async: int = 1,
        process_group: Any = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        if save_interval <= 0:
            raise AssertionError(f"save_interval is positive, found {save_interval}")
        self.base_path, self.save_interval = Path(path), save_interval
        self.max_to_keep, self._group = max_to_keep, process_group
        self._preemptible = chkpt_on_preemption
        if chkpt_on_preemption:
            _XLAC._activate_preemption_sync_manager()
        self.base_path.mkdir(parents=True, exist_ok=True)
        self._queue: queue.Queue[Any] = queue.Queue(max_pending_async)
        self._errors: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def should_save(self, step: int) -> bool:
        """Whether the step is one of those saved, or the last before the machine goes."""
        return step % self.save_interval == 0 or self.reached_preemption(step)

    def all_steps(self) -> list[int]:
        """Those saved, the oldest first."""
        found = (p for p in self.base_path.glob(f"*/{_DONE}") if p.parent.name.isdecimal())
        made = sorted((p.stat().st_mtime_ns, int(p.parent.name)) for p in found)
        return [step for _, step in made]

    def save(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Whether it was saved."""
        if not (self.should_save(step) or force):
            return False
        self._save(step, state_dict)
        return True

    def _save(self, step: int, state_dict: dict[str, Any]) -> None:
        to = self.base_path / str(step)
        dcp.save(
            state_dict, storage_writer=dcp.FileSystemWriter(str(to)), planner=SPMDSavePlanner(),
            process_group=self._group,
        )  # fmt: skip
        steps = self.all_steps()
        for old in steps[: -self.max_to_keep] if self.max_to_keep else []:
            shutil.rmtree(self.base_path / str(old), ignore_errors=True)

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """The same, in a thread, of the values as they are now."""
        if not (self.should_save(step) or force):
            return False
        self._raise()
        self._queue.put((self._save, step, _sharded_cpu_state_dict(state_dict)))
        if self._thread is None:  # behind what it has to do: it begins with it at once
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        return True

    def _work(self) -> None:
        while True:
            save, step, state = self._queue.get()
            try:
                save(step, state)
            except BaseException as error:  # raised at the next call
                self._errors.append(error)
            finally:
                del state  # the host's copy of the model
                self._queue.task_done()

    def _raise(self) -> None:
        if self._errors:
            raise RuntimeError("an asynchronous checkpoint failed") from self._errors.pop()

    def join(self) -> None:
        """Waits for what is being saved."""
        self._queue.join()
        self._raise()

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Into the state dict's tensors, in place."""
        if step not in self.all_steps():
            raise AssertionError(f"no checkpoint of step {step} in {self.base_path}")
        dcp.load(
            state_dict, storage_reader=dcp.FileSystemReader(str(self.base_path / str(step))),
            planner=SPMDLoadPlanner(), process_group=self._group,
        )  # fmt: skip

    def reached_preemption(self, step: int) -> bool:
        """Whether a process was told to end. With several processes each asks at the same step."""
        return self._preemptible and _XLAC._sync_point_reached(step)
