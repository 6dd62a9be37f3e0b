"""How facts look: one table of messages, one renderer of tables, pages, plots. Nothing reads back what is shown here."""
