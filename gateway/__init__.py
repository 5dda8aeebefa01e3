"""The upper floor: the daemon, from the socket to the log. A message goes web → websocket → switchboard → chat →
conversation → turn, and its events come back through subscribers and outbox.

Where it starts:

    cli            the command line; each command is one of the modules below
    daemon         the only place where things are put together; start, serve, stop in order
    home, token    its folder; what clients must show
    logs, clock    how it speaks to operators; what time it is
    next_steps     what `make run` says to type next
    supervision    systemd: ready, watchdog, a socket that was opened before; service: `exuvia service`
    errors         this floor's error tree

Clients, and who they are:

    web, answers         HTTP: which requests are let in; answers in one form
    access, attempts     tokens, hosts and origins; how long an address waits after wrong tokens
    people               who there is, and which token names whom
    greeting, websocket  how a connection says who is there; what its frames do
    frames               what may be said on either side
    uploads              HTTP: files on their way in and out
    outbox, subscribers  everything that goes to one client, at its own pace: cursors, not queues
    terminal/            `exuvia chat`, a client of the same protocol

Conversations and turns:

    switchboard, chat      which conversation a message belongs to; one key of one person
    conversation           the two coroutines that own one session
    conversations          what each is made of, and what the configuration says to it
    inbox                  what waits, and which of it is taken next: the queue modes
    turn, tool_calls       one turn, in a straight line; its calls of tools, each run once
    live                   the answer that is being streamed
    history                pages of earlier events
    instructions           the text before every conversation; workspace_notes: AGENTS.md and SOUL.md
    files, showing         a conversation's files on their way to models: what was refused; what is shown, read once
    offered_tools          which tools the model is offered now

Models:

    models          which model answers
    fallback        who answers when it cannot
    breaker         whether a provider is asked at all; asides: which models asked to be left alone, and until when
    open_providers  the providers that are open, each on its own settings

What is typed after a slash:

    commands, view   which text is a command; what it sees of its conversation, and may do
    status           `/status` in words
    context_report   what the next request would hold, for `/context`
    sentences        sentences that stand in more than one place

Configuration:

    config                           every key, its type and its default
    config_sources, config_fitting   file, environment and command line as one tree; values fitted to their types
    config_checking, config_place    every fault, and in which line it stands
    config_commands                  `exuvia config`; with config_showing and config_writing
    secret_references                `env:`, `file:`, `credential:`
    settings, reloading              the configuration in force; a saved file takes effect
    small_files                      small files that people write, read within a bound

How it is, and what is wrong:

    readiness, troubles         whether messages are taken; what else is not well
    overview, status_command    `/status.json`, and `exuvia status`, which prints it
    metrics, instruments        `/metrics`: its form; what is read for it
    figures, session_meter      what is counted; what reads a session along to count it
    loop_lag, own_process       how late the event loop is; what the system says of this process
    doctor                      `exuvia doctor`; with doctor_findings, doctor_home, doctor_machine, doctor_models,
                                doctor_network
    session_commands            `exuvia sessions`; session_files: the journals of a home, read as files
"""
