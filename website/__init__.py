"""The documentation site: pages that are generated from the code, and checks of the built site.

The site is built by MkDocs with the theme Material and mkdocstrings. `mkdocs.yml` lists the written pages;
`website/hooks.py` adds the generated ones.
"""
