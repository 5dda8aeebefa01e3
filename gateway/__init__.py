"""The upper floor: the daemon, from the socket to the log. A message goes door → conversations → models, and its events
come back through the door.

    cli              the command line; each command is one of the modules below; command_line: what they share
    daemon           one gateway: start, serve, reload, stop in order
    assembly         what it consists of: the only place where things are put together
    home             its folder; whereabouts: where the gateway of a home listens
    address_space    how much memory a start must be allowed
    logs, clock      how it speaks to operators; what time it is; version: which Exuvia it is
    next_steps       what `make run` says to type next
    supervision      systemd: ready, watchdog, a socket that was opened before; systemd_units: `exuvia service`
    session_commands `exuvia sessions`; session_files: the journals of a home, read as files
    fork_command     `exuvia sessions fork`; compactions_command: `exuvia sessions compactions`
    context_command  `exuvia context`: a past request, rebuilt; past_requests: from which transcript
    models_command   `exuvia models`: which there are, and their limits
    memory           the memory of the workspace, opened; memory_commands, memory_status, memory_audit,
                     memory_eval, eval_questions, eval_cli, memory_cli: `exuvia memory`
    facts            the facts, opened; facts_commands, facts_cli: `exuvia memory facts`
    plugins_commands, plugins_cli: `exuvia plugins`
    fact_finding     turns looked through for facts, behind everything else; fact_distilling: what stays of them;
                     fact_asking: asking a model about either; fact_pauses: pauses after failures
    errors           this floor's error tree

Its rooms, each with a map of its own:

    door/            who comes in, and everything that goes to and from a client
    channels/        ways in and out that plugins bring
    conversations/   sessions that are open, and their turns
    openai_api/      programs that speak OpenAI's API
    models/          which model answers, and who answers when it cannot
    provided/        what plugins provide, made and used
    commands/        what is typed after a slash, and what it sees
    configuration/   what may be configured, and what is in force
    tokenizer/       exact counts of tokens, by a process of its own
    measuring/       how the gateway is: status, metrics, troubles
    doctor/          what is wrong with an installation
    console/         what a browser shows of all this
    terminal/        `exuvia chat`, a client of the same protocol
"""
