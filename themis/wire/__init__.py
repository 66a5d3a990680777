"""The wire: messages, their generated code, values to messages and back."""
