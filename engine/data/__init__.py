"""From files to sequences: files -> forms -> tokens -> stores."""
