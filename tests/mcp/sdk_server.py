"""A server of the newest protocol on the SDK: it asks the person by a result, and changes its tools while it runs."""

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = MCPServer("modern")

FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


@server.tool()
async def remove(table: str, context: Context) -> str | InputRequiredResult:
    """Remove a table, once the person agrees."""
    if not context.input_responses:
        asked = ElicitRequest(params=ElicitRequestFormParams(message=f"Remove {table}?", requested_schema=FORM))
        return InputRequiredResult(input_requests={"sure": asked}, request_state=table)
    answer = context.input_responses["sure"]
    assert isinstance(answer, ElicitResult)
    return f"{context.request_state}: {answer.action}"


@server.tool()
async def grow(context: Context) -> str:
    """Offer one tool more."""
    server.add_tool(lambda: "grown", name="grown", description="Return a word.")
    await context.notify_tools_changed()
    return "done"


if __name__ == "__main__":
    server.run()
