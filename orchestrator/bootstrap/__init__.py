"""From phones on USB to Termux with sshd and this computer's key, through adb."""
