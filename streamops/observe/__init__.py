"""What a stream tells about itself: which one do I want?

====================  ===========================================================
``account_late``      late rows, counted by key, window, producer and lateness
``merge_accounts``    such accounts, merged
``lateness_needed``   the allowed lateness that would have saved a share of them
====================  ===========================================================
"""

from streamops.observe.accounts import account_late, lateness_needed, merge_accounts

__all__ = ["account_late", "lateness_needed", "merge_accounts"]
