"""Skills in the Agent Skills convention: a folder with a `SKILL.md`, used after a person has admitted exactly its files.

admissions      The log of admitted skills.
archives        Unpacking archives with skills.
catalogue       The names and descriptions in a model's instructions.
installation    Adding skills from a folder or an archive.
inventory       The skills of a gateway, and loading them.
library         The skills as a gateway holds them.
persons_skills  The skills as one person may see and admit them.
skill_file      Reading `SKILL.md`.
skill_folder    The files of a skill and their digest.
skill_names     The form of names, and names that look alike.
skill_search    Finding skills for a task.
skill_settings  The `[skills]` section of the configuration.
skill_tools     The tools `skill` and `find_skill`.
"""
