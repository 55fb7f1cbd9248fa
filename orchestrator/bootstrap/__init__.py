"""From phones on a USB hub to Termux with sshd and this computer's key, through adb."""
