"""The same from a shell."""

import argparse

from .state_dict_utils import consolidate_sharded_model_checkpoints


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt_prefix", required=True)
    parser.add_argument("--ckpt_suffix", default="*.pth")
    parser.add_argument("--save_path", default="")
    asked = parser.parse_args()
    consolidate_sharded_model_checkpoints(asked.ckpt_prefix, asked.ckpt_suffix, asked.save_path)


if __name__ == "__main__":
    main()
