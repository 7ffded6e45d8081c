"""What of a study's scores hangs on where patches lie: the shuffle test."""
