"""From rows of any form to examples: chats, completions, texts."""
