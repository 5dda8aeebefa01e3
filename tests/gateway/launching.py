"""A plugin with one tool that must be approved, and what it did."""

from __future__ import annotations

from pathlib import Path

LAUNCHING = '''
from pathlib import Path

from exuvia import ApprovalRequest, OutputFile, ToolDefinition, ToolOutput, hookimpl


class Launch:
    """Appends its target to the file `launches`. The call depends on the file `plan`; on the way to Venus it asks."""

    definition = ToolDefinition(name="launch", description="Launches.", parameters={"type": "object"})
    repeatable = False

    def __init__(self, context):
        self.workspace = Path(context.workspace)

    async def approval(self, arguments, call):
        target, plan = arguments["target"], self.workspace / "plan"
        return ApprovalRequest(
            what=f"launch --to {target}",
            detail="--- a/plan\\n+++ b/plan\\n@@ -1 +1 @@\\n-stay\\n+go\\n",
            why="Nobody named this target.",
            argv=("launch", "--to", target),
            state=plan.read_text() if plan.exists() else "",
            rememberable=target != "sun",
        )

    async def run(self, arguments, call):
        if arguments["target"] == "venus" and not await call.ask(ApprovalRequest(what="Is it cool enough?")):
            return ToolOutput(text="too hot")
        with (self.workspace / "launches").open("a") as file:
            file.write(arguments["target"] + "\\n")
        log = OutputFile(content=f"{arguments['target']} reached".encode(), media="text/plain", name="log.txt")
        return ToolOutput(text="launched", attachments=(log,))


@hookimpl
def register_tools():
    return [Launch]
'''


def launches(home: Path) -> list[str]:
    """The targets of the calls that have run."""
    path = home / "workspace" / "launches"
    return path.read_text().splitlines() if path.exists() else []


def launching(*targets: str, last: str = "It is done.") -> list[dict[str, object]]:
    """The script of a model that calls the tool once for each target, and then says something."""
    calls: list[dict[str, object]] = [{"calls": [{"tool": "launch", "arguments": {"target": each}}]} for each in targets]
    return [*calls, {"text": last}]
