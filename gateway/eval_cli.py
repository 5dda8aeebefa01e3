"""`exuvia memory eval` on the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.command_line import config_option, end, home_option, json_option, made_home


@click.command("eval")
@click.argument("questions", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@config_option
@json_option
@click.option("--k", "cutoffs", default="5,10", show_default=True, help="After how many results recall is told.")
@click.option("--all", "every", is_flag=True, help="Compare all ways to rank, not only the configured one.")
def evaluate(questions: Path, home: Path | None, file: Path | None, cutoffs: str, *, every: bool, as_json: bool) -> None:
    """Say how well the memory answers the questions of FILE, JSON lines or TOML, each with the notes that answer it."""
    from gateway import memory_eval  # noqa: PLC0415 - for quick help

    def run() -> int:
        depths = sorted({int(each) for each in cutoffs.split(",") if each.strip().isdecimal()})
        if not depths or len(depths) != len(cutoffs.split(",")) or not 1 <= depths[0] <= depths[-1] <= memory_eval.MOST:
            raise click.ClickException(f"--k takes numbers from 1 to {memory_eval.MOST}, as in --k 5,10.")
        return memory_eval.evaluate(
            made_home(home), file, os.environ, questions, sys.stdout, cutoffs=depths, every=every, as_json=as_json
        )

    end(run)
