"""What is wrong with the phones, how that shows, and what helps.

look        one session a phone: a bounded script that tells facts (facts.py, session.sh, examine.sh)
judge       pure functions over those facts, one a check (checks/)
mend        what can be done over SSH (mend.py); what needs adb is printed as the lines to paste (adb.py)
"""
